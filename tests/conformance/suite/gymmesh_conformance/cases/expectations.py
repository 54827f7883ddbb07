"""What a step expects of an answer, and how far it is from that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import Message

from gymmesh_conformance.cases.gathering import gathered
from gymmesh_conformance.cases.matching import mismatches, to_plain
from gymmesh_conformance.cases.reading import CaseError
from gymmesh_conformance.errors import CallError, usage_of


@dataclass
class Answer:
    """What a call gave: responses, or an error, or neither when it was cancelled."""

    request: Message
    responses: list[Message] = field(default_factory=list)
    error: CallError | None = None
    cancelled: bool = False

    def plain(self) -> Any:
        return [to_plain(one) for one in self.responses]


def difference(kept: Answer, answer: Answer, leave_out: Sequence[str]) -> list[str]:
    """How an answer, or error, is another than the one that was kept."""

    def shown(one: Answer) -> Any:
        return [
            {key: value for key, value in plain.items() if key not in leave_out}
            for plain in one.plain()
        ]

    if kept.error is not None and answer.error is not None:
        same = kept.error.status == answer.error.status
        return [] if same else [f"the error {answer.error} differs from {kept.error}"]
    if shown(kept) == shown(answer):
        return []
    return [f"the answer differs from the earlier one: {shown(answer)} is not {shown(kept)}"]


def expectation_problems(expect: Mapping[str, Any], answer: Answer) -> list[str]:
    """What of an answer is not as a step expects. Raises CaseError for words that there are not."""
    if "any_of" in expect:
        tried = [expectation_problems(one, answer) for one in expect["any_of"]]
        return [] if [] in tried else [problem for problems in tried for problem in problems]
    if "error" in expect:
        return _error_mismatches(expect["error"], answer)
    if answer.error is not None:
        return [f"failed with {answer.error} ({answer.error.reason or 'no reason'})"]
    checks: dict[str, Callable[[Any], list[str]]] = {
        "response": lambda value: mismatches(value, answer.plain()[-1], "response"),
        "kinds": lambda value: mismatches(value, _kinds(answer), "kinds"),
        "events": lambda value: _events_mismatches(value, answer),
        "gathered": lambda value: mismatches(value, gathered(answer.responses), "gathered"),
        "without": lambda value: [
            f"there is a `{kind}`" for kind in _kinds(answer) if kind in value
        ],
    }
    unknown = set(expect) - set(checks)
    if unknown:
        raise CaseError(f"an expectation has the unknown keys {sorted(unknown)}")
    return [problem for key, value in expect.items() for problem in checks[key](value)]


def _error_mismatches(expected: Mapping[str, Any], answer: Answer) -> list[str]:
    error = answer.error
    if error is None:
        return [f"expected the error {dict(expected)}, got a success"]
    got = {
        "code": error.code.name,
        "reason": error.reason,
        "metadata": error.metadata,
        "usage": [to_plain(one) for one in usage_of(error.status)],
    }
    if error.status is None and error.code is not grpc.StatusCode.UNIMPLEMENTED:
        # Made by a gRPC library; the law allows it.
        expected = {"code": expected.get("code", error.code.name)}
        late = expected["code"] == grpc.StatusCode.DEADLINE_EXCEEDED.name
        if late and error.code is grpc.StatusCode.CANCELLED:
            return []  # at the deadline grpc-go, as a server, resets the stream
    return mismatches(expected, got, "error")


def _kinds(answer: Answer) -> list[str]:
    kinds = []
    for plain in answer.responses:
        event: Any = getattr(plain, "event", plain)
        oneof = "event" if event is not plain else "frame"
        kinds.append(event.WhichOneof(oneof) or "nothing")
    return kinds


def _events_mismatches(expected: list[Any], answer: Answer) -> list[str]:
    rest = iter(answer.plain())
    for one in expected:
        nearest: list[str] = []
        for plain in rest:
            nearest = mismatches(one, plain.get("event", plain), "event")
            if not nearest:
                break
        else:
            return [
                f"no event (further on) is like {one}; kinds: {_kinds(answer)}; last: {nearest}"
            ]
    return []
