"""The suites notice what is wrong: each defect of an otherwise good server fails its case."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.message import Message

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_conformance.errors import CallError
from gymmesh_conformance.paths import Path
from gymmesh_conformance.runner import CaseResult, Subject, run_case
from gymmesh_conformance.scripted.world import World
from gymmesh_conformance.services import Rpc
from gymmesh_conformance.suites import select
from tests.conformance.implementations import MINIMAL, Implementation
from tests.conformance.minimal import agent as minimal_agent
from tests.conformance.minimal.attempt import Attempt

_fresh = itertools.count()


@dataclass
class Tampered:
    """A path that changes what goes through it: requests, responses, errors, whole streams."""

    inner: Path
    request: Callable[[str, Any], None] = lambda name, request: None
    response: Callable[[str, Any], None] = lambda name, response: None
    error: Callable[[CallError], CallError] = lambda error: error
    stream_of: Callable[[list[Any]], list[Any]] = lambda responses: responses

    async def unary(self, rpc: Rpc, request: Message, timeout: float) -> Message:
        changed = type(request).FromString(request.SerializeToString())
        self.request(rpc.method.name, changed)
        try:
            response = await self.inner.unary(rpc, changed, timeout)
        except CallError as error:
            raise self.error(error) from None
        self.response(rpc.method.name, response)
        return response

    async def stream(
        self, rpc: Rpc, request: Message | AsyncIterator[Message], timeout: float
    ) -> AsyncIterator[Message]:
        found = [one async for one in self.inner.stream(rpc, request, timeout)]
        for response in self.stream_of(found):
            yield response


def _implementation(name: str) -> Implementation:
    return next(one for one in MINIMAL if one.name == name)


async def _run(name: str, case: str, **tampering: Any) -> CaseResult:
    implementation = _implementation(name)
    async with implementation.open("plain") as target:
        good = await target.subject()
        subject = Subject(Tampered(good.path, **tampering), good.variables, good.world)
        return await run_case(select(implementation.suite, [case])[0], subject)


def _set(rpc: str, **fields: Any) -> Callable[[str, Any], None]:
    def change(name: str, message: Any) -> None:
        if name == rpc:
            for field, value in fields.items():
                setattr(message, field, value() if callable(value) else value)

    return change


def _unique() -> str:
    return f"fresh-{next(_fresh)}"


def _no_status(error: CallError) -> CallError:
    return CallError(error.code, error.message)


def _no_reward(name: str, message: Any) -> None:
    if name == "Verify":
        message.verification.ClearField("reward")


def _reversed_verdicts(name: str, message: Any) -> None:
    if name == "VerifyGroup":
        found = list(message.verdicts)
        del message.verdicts[:]
        message.verdicts.extend(reversed(found))


def _lost_outputs(name: str, message: Any) -> None:
    if name == "CallTool":
        message.ClearField("text")


@pytest.mark.parametrize(
    ("server", "case", "tampering"),
    [
        (
            "capitals",
            "same_request_same_session",
            {"response": _set("CreateSession", session_id=_unique)},
        ),
        (
            "capitals",
            "same_request_same_session",
            {"request": _set("CreateSession", request_id=_unique)},
        ),
        (
            "capitals",
            "another_request_another_session",
            {"request": _set("CreateSession", request_id="a")},
        ),
        ("capitals", "keeps_the_seed", {"response": _set("CreateSession", seed=5)}),
        ("capitals", "opens_a_session", {"response": _set("CreateSession", instance_id="x")}),
        (
            "capitals",
            "tool_runs_once_side_by_side",
            {"request": _set("CallTool", request_id=_unique)},
        ),
        ("capitals", "calls_a_tool", {"response": _lost_outputs}),
        ("capitals", "tool_error_is_an_answer", {"response": _set("CallTool", outcome=1)}),
        ("capitals", "tool_in_no_session", {"error": _no_status}),
        ("capitals", "takes_no_turns", {"error": _no_status}),
        ("capitals", "right_answer_is_rewarded", {"response": _no_reward}),
        ("capitals", "lists_tools_by_page", {"request": _set("ListTools", page_token="")}),
        (
            "capitals_turns",
            "takes_turns_until_done",
            {"request": _set("NextTurn", request_id=_unique)},
        ),
        ("capitals_groups", "judges_groups", {"response": _reversed_verdicts}),
        ("echo", "same_request_same_sample", {"request": _set("CreateResponse", request_id="")}),
        ("echo", "same_request_side_by_side", {"request": _set("CreateResponse", request_id="")}),
        (
            "echo",
            "refuses_a_reused_request_id",
            {"request": _set("CreateResponse", request_id=_unique)},
        ),
        ("echo", "keeps_the_call_id", {"response": _set("CreateResponse", call_id="x")}),
        ("echo", "streams", {"stream_of": lambda frames: frames[:-1]}),
        ("echo", "streams", {"stream_of": lambda frames: [*frames, frames[-1]]}),
    ],
)
async def test_a_tampered_server_fails(server: str, case: str, tampering: dict[str, Any]) -> None:
    good = await _run(server, case)
    assert good.outcome == "passed", good.problems
    bad = await _run(server, case, **tampering)
    assert bad.outcome == "failed"


def _renumbered(responses: list[Any], *keep: str) -> list[Any]:
    kept = [one for one in responses if one.event.WhichOneof("event") in keep]
    for number, one in enumerate(kept, 1):
        one.event.sequence = number
    end = kept[-1].event
    getattr(end, end.WhichOneof("event")).events = len(kept)
    return kept


def _each(change: Callable[[Any], None]) -> Callable[[list[Any]], list[Any]]:
    def changed(responses: list[Any]) -> list[Any]:
        for one in responses:
            change(one.event)
        return responses

    return changed


def _gap(event: Any) -> None:
    event.sequence += event.sequence > 1


def _other_attempt(event: Any) -> None:
    event.attempt += 1


def _miscounted(event: Any) -> None:
    if event.HasField("completed"):
        event.completed.counts.model_calls += 1


def _forgotten_parent(event: Any) -> None:
    if event.HasField("model_call_completed"):
        event.model_call_completed.parent_call_id = ""


def _zero_reward(event: Any) -> None:
    if event.HasField("verified"):
        event.verified.verification.reward = 0.0


def _no_boundary(event: Any) -> None:
    if event.HasField("failed"):
        event.failed.failure.ClearField("boundary")


def _bare_status(event: Any) -> None:
    if event.HasField("failed"):
        del event.failed.failure.status.details[:]


@pytest.mark.parametrize(
    ("case", "stream_of"),
    [
        ("single_answer", _each(_gap)),
        ("single_answer", _each(_other_attempt)),
        ("single_answer", _each(_miscounted)),
        ("single_answer", lambda all_: all_[:-1]),
        ("single_answer", lambda all_: [*all_, all_[-1]]),
        ("rollouts_side_by_side", lambda all_: _renumbered(all_, "started", "completed")),
        ("rollouts_side_by_side", lambda all_: _renumbered(all_, "verified", "completed")),
        ("tool_call_then_answer", _each(_forgotten_parent)),
        ("verdict_pending", _each(_zero_reward)),
        ("verification_not_wanted", _each(_zero_reward)),
        ("model_down", _each(_no_boundary)),
        ("model_down", _each(_bare_status)),
    ],
)
async def test_a_tampered_stream_fails(
    case: str, stream_of: Callable[[list[Any]], list[Any]]
) -> None:
    good = await _run("minimal", case)
    assert good.outcome == "passed", good.problems
    bad = await _run("minimal", case, stream_of=stream_of)
    assert bad.outcome == "failed"


class _Leaky(Attempt):
    def close_session(self) -> None:
        """Never closes it."""


class _Reordering(Attempt):
    """Shows the model the outputs of its calls in the wrong order."""

    async def _call_tools(self, calls: list[responses_pb2.FunctionCall]) -> bool:
        done = await super()._call_tools(calls)
        if len(calls) > 1:
            self._items[-2:] = reversed(self._items[-2:])
        return done


class _Hasty(Attempt):
    """Sends the calls of an answer at once, whatever the session needs."""

    async def _open(self) -> None:
        await super()._open()
        self._session.tools_in_order = False


class _Talkative(Attempt):
    """Shows the model the verifier's payload."""

    async def _open(self) -> None:
        await super()._open()
        self._params.instructions = self._request.task.payload_json.decode()


class _Generous(Attempt):
    """Takes a fault of the verifier for a reward of 0."""

    async def _judge(self, reason: rollout_pb2.StopReason.ValueType) -> rollout_pb2.Verification:
        try:
            return await super()._judge(reason)
        except Exception:
            status = rollout_pb2.VERIFICATION_STATUS_VERIFIED
            return rollout_pb2.Verification(status=status, reward=0.0, verifier="v")


class _Nameless(Attempt):
    """Makes every tool call under one request_id."""

    def _name(self, part: str) -> str:
        return "always-the-same" if "-" in part else super()._name(part)


class _Forgetful(Attempt):
    """Judges only the last item."""

    async def _judge(self, reason: rollout_pb2.StopReason.ValueType) -> rollout_pb2.Verification:
        del self._items[self._first : -1]
        return await super()._judge(reason)


class _Scribbling(Tampered):
    """Changes the requests that it receives, as only a server in the same process can."""

    async def unary(self, rpc: Rpc, request: Message, timeout: float) -> Message:
        response = await self.inner.unary(rpc, request, timeout)
        request.Clear()
        return response


async def test_a_server_that_changes_requests_fails() -> None:
    async with _implementation("capitals").open("plain") as target:
        good = await target.subject()
        subject = Subject(_Scribbling(good.path), good.variables)
        result = await run_case(select("resource", ["opens_a_session"])[0], subject)
    assert any("changed by its receiver" in problem for problem in result.problems)


async def test_an_agent_that_changes_answers_fails() -> None:
    script = World().add("c", {"model": [{"response": {"response": {"status": "completed"}}}]})
    answer = await script.model("policy", model_pb2.CreateResponseRequest())
    assert script.complaints() == []
    answer.response.status = "changed"
    assert script.complaints() == ["a CreateResponseResponse was changed by its receiver"]


@pytest.mark.parametrize(
    ("attempt", "case"),
    [
        (_Leaky, "single_answer"),
        (_Leaky, "model_down"),
        (_Leaky, "cancelled_in_a_tool_call"),
        (_Reordering, "outputs_in_call_order"),
        (_Hasty, "calls_in_order"),
        (_Talkative, "single_answer"),
        (_Generous, "verifier_fault"),
        (_Nameless, "outputs_in_call_order"),
        (_Forgetful, "tool_call_then_answer"),
    ],
)
async def test_a_careless_agent_fails(
    attempt: type[Attempt], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minimal_agent, "Attempt", attempt)
    monkeypatch.setattr("gymmesh_conformance.runner._SETTLE_S", 0.5)
    assert (await _run("minimal", case)).outcome == "failed"
