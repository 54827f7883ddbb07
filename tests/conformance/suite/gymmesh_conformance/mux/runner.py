"""Runs the cases for the mux.

A case is a list of steps on one Exchange stream:

    send: [frame, …]             a batch, in proto JSON; `times: 3` sends it so often
    with_unknown_fields: [frame] the same, each with a field that nobody knows, and the batch, too
    begin_many: {calls: 9, method: …}   so many calls from 1 on, whose requests are not complete
    bytes: "ff"                  what is no batch
    answered: 1                  the unary call 1 ends well, with the answer that a plain RPC gives
    message: 1                   one whole message of call 1 comes
    failed: {call: 1, error: {code, reason, metadata}}   the call ends so; messages may come before
    quiet: {call: 1, for: 0.3}   for so many seconds nothing comes of it
    broken: true                 the stream ends with UNAVAILABLE / MUX_BROKEN, and a new one works
    finish: true                 all is said; the server ends the stream well
    greeting: true               the server's first metadata offer the mux, before anything is sent
    stop: true                   the server is told to go down
    go_away: true                it says that it takes no new calls

Frames that come go through `laws` besides.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from google.protobuf import json_format

from gymmesh.mux.v1 import mux_pb2
from gymmesh_conformance.cases import Case, CaseError, mismatches, read_cases, render
from gymmesh_conformance.errors import CallError, from_status
from gymmesh_conformance.laws import error_problems
from gymmesh_conformance.mux.target import MuxTarget
from gymmesh_conformance.runner import CaseResult, Stop
from gymmesh_conformance.services import with_unknown_field

SUITE: Final = "mux"
_FILE: Final = Path(__file__).parents[1] / "case_files" / "mux.yaml"
_HEAR_S: Final = 15.0
_BATCH: Final = 1024  # frames
_OFFERED: Final = "gymmesh-mux"
_VERSION: Final = "1"


@cache
def load_mux_cases() -> tuple[Case, ...]:
    """The cases. Raises CaseError."""
    return read_cases(SUITE, [_FILE])


def select_mux_cases(only: Iterable[str] = ()) -> list[Case]:
    """The cases, or those named. Raises LookupError for one that there is not."""
    wanted = list(only)
    cases = [case for case in load_mux_cases() if not wanted or case.name in wanted]
    missing = set(wanted) - {case.name for case in cases}
    if missing:
        raise LookupError(f"the suite '{SUITE}' has no case named {', '.join(sorted(missing))}")
    return cases


async def run_mux_suite(
    target: MuxTarget,
    *,
    only: Iterable[str] = (),
    stop: Stop | None = None,
    report: Callable[[CaseResult], None] | None = None,
) -> list[CaseResult]:
    """Runs the cases in order, or only those named; `stop` tells the server to go down.

    Raises LookupError for a case that there is not, TargetError as `MuxTarget.variables`.
    """
    variables = await target.variables()
    results = []
    for case in select_mux_cases(only):
        result = await run_mux_case(case, target, variables, stop)
        results.append(result)
        if report is not None:
            report(result)
    return results


async def run_mux_case(
    case: Case, target: MuxTarget, variables: Mapping[str, Any], stop: Stop | None = None
) -> CaseResult:
    """Runs one case. Never raises for what the server does; raises CaseError for a bad case."""
    lacks = case.lacks({**variables, "stop": stop})
    if lacks:
        return CaseResult(case.suite, case.name, case.rule, "skipped", lacks=lacks)
    started = time.monotonic()
    run = _Run(target, variables, stop)
    try:
        for number, step in enumerate(case.steps, 1):
            for _ in range(step.get("times", 1)):
                run.problems += [f"step {number}: {one}" for one in await run.step(step)]
            if run.problems:
                break
    finally:
        await run.close()
    problems = (*run.problems, *run.stream.problems)
    outcome = "failed" if problems else "passed"
    seconds = time.monotonic() - started
    return CaseResult(case.suite, case.name, case.rule, outcome, problems, seconds=seconds)


class _Run:
    """One run of one case."""

    def __init__(self, target: MuxTarget, variables: Mapping[str, Any], stop: Stop | None) -> None:
        self._target = target
        self._variables = variables
        self._stop = stop
        self.stream = target.exchange()
        self.problems: list[str] = []

    async def close(self) -> None:
        await self.stream.close()

    async def step(self, step: Mapping[str, Any]) -> list[str]:
        words = [word for word in step if word in self._steps]
        if len(words) != 1:
            raise CaseError(f"mux: a step is one of {sorted(self._steps)}, not {sorted(step)}")
        return await self._steps[words[0]](self, render(step[words[0]], self._lookup))

    async def _send(self, frames: Any) -> list[str]:
        try:
            read = [json_format.ParseDict(one, mux_pb2.Frame()) for one in frames]
        except json_format.ParseError as error:
            raise CaseError(f"mux: {error}") from error
        await self.stream.send(read)
        return []

    async def _send_more(self, frames: Any) -> list[str]:
        read = [json_format.ParseDict(one, mux_pb2.Frame()) for one in frames]
        more = mux_pb2.ExchangeRequest()
        for frame in read:
            more.frames.add().MergeFromString(with_unknown_field(frame, 3).SerializeToString())
        batch = with_unknown_field(more, 3)
        await self.stream.send_bytes(batch.SerializeToString(), read)
        return []

    async def _begin_many(self, given: Any) -> list[str]:
        begin = mux_pb2.Begin(method=given["method"], more=True)
        numbers = range(1, 2 * given["calls"], 2)
        for first in range(0, len(numbers), _BATCH):
            some = numbers[first : first + _BATCH]
            await self.stream.send([mux_pb2.Frame(call=number, begin=begin) for number in some])
        return []

    async def _bytes(self, text: str) -> list[str]:
        await self.stream.send_bytes(bytes.fromhex(text))
        return []

    async def _answered(self, call: int) -> list[str]:
        payload, end = await self._message(call)
        if payload is None:
            return [f"call {call}: {_said(end)} instead of a response"]
        if payload != self._variables["answer"]:
            return [f"call {call}: the response is not that of the plain RPC"]
        last = await self._next(call)
        return [] if last is not None and _is_ok(last) else [f"call {call}: {_said(last)}, not OK"]

    async def _came(self, call: int) -> list[str]:
        payload, end = await self._message(call)
        return [] if payload is not None else [f"call {call}: {_said(end)} instead of a message"]

    async def _failed(self, expected: Any) -> list[str]:
        call = expected["call"]
        frame = await self._next(call)
        while frame is not None and frame.WhichOneof("kind") != "end":
            frame = await self._next(call)
        if frame is None or _is_ok(frame):
            return [f"call {call}: expected the error {expected['error']}, got: {_said(frame)}"]
        error = from_status(frame.end.status)
        got = {
            "code": error.code.name,
            "reason": error.reason,
            "metadata": error.metadata,
            "retry_info": _has_retry_info(error),
        }
        return mismatches(expected["error"], got, f"call {call}")

    async def _quiet(self, expected: Any) -> list[str]:
        frame = await self.stream.next(expected["call"], expected["for"])
        return [] if frame is None else [f"{_said(frame)} came where nothing should"]

    async def _broken(self, _: Any) -> list[str]:
        if not await self.stream.wait(_HEAR_S):
            return ["the stream goes on after a violation"]
        error = self.stream.error
        if error is None:
            return ["the stream ended with OK after a violation"]
        got = {"code": error.code.name, "reason": error.reason}
        problems = mismatches({"code": "UNAVAILABLE", "reason": "MUX_BROKEN"}, got, "the stream")
        return [*problems, *error_problems(error), *await self._works_again()]

    async def _works_again(self) -> list[str]:
        other = _Run(self._target, self._variables, None)
        try:
            call = {"call": 1, "begin": self._variables["unary"]}
            problems = [*await other._send([call]), *await other._answered(1)]
        finally:
            await other.close()
        return [f"on a new stream: {problem}" for problem in problems]

    async def _finish(self, _: Any) -> list[str]:
        if not await self.stream.finish(_HEAR_S):
            return ["the server did not end the stream when all was said and done"]
        error = self.stream.error
        return [] if error is None else [f"the stream ended with {error}"]

    async def _greeting(self, _: Any) -> list[str]:
        try:
            found = await self.stream.greeting(_HEAR_S)
        except TimeoutError:
            return [f"no metadata came within {_HEAR_S:g} s of opening the stream"]
        except CallError as error:
            return [f"the stream was refused: {error}"]
        got = found.get(_OFFERED)
        return [] if got == _VERSION else [f"the first metadata have {_OFFERED}={got!r}, not '1'"]

    async def _told_to_stop(self, _: Any) -> list[str]:
        assert self._stop is not None  # the case needs it
        await self._stop()
        return []

    async def _go_away(self, _: Any) -> list[str]:
        frame = await self._next(0)
        return [] if frame is not None else ["no go_away came"]

    async def _message(self, call: int) -> tuple[bytes | None, mux_pb2.Frame | None]:
        """The next whole message of a call; else None and what came instead."""
        frame = await self._next(call)
        if frame is None or frame.WhichOneof("kind") != "message":
            return None, frame
        payload, more = frame.message.payload, frame.message.more
        while more:
            frame = await self._next(call)
            if frame is None or frame.WhichOneof("kind") != "chunk":
                return None, frame
            payload, more = payload + frame.chunk.payload, not frame.chunk.last
        return payload, None

    async def _next(self, call: int) -> mux_pb2.Frame | None:
        return await self.stream.next(call, _HEAR_S + self._variables["slow_s"])

    def _lookup(self, name: str) -> Any:
        found: Any = self._variables
        for part in name.split("."):
            found = found[part]
        return found

    _steps: Final[Mapping[str, Callable[[_Run, Any], Awaitable[list[str]]]]] = {
        "send": _send,
        "with_unknown_fields": _send_more,
        "begin_many": _begin_many,
        "bytes": _bytes,
        "answered": _answered,
        "message": _came,
        "failed": _failed,
        "quiet": _quiet,
        "broken": _broken,
        "finish": _finish,
        "greeting": _greeting,
        "stop": _told_to_stop,
        "go_away": _go_away,
    }


def _is_ok(frame: mux_pb2.Frame) -> bool:
    return frame.HasField("end") and not frame.end.status.code


def _said(frame: mux_pb2.Frame | None) -> str:
    if frame is None:
        return "nothing came"
    if frame.HasField("end") and frame.end.status.code:
        return f"the end with {from_status(frame.end.status)}"
    return f"'{frame.WhichOneof('kind')}'"


def _has_retry_info(error: CallError) -> bool:
    details = error.status.details if error.status is not None else ()
    return any(detail.type_url.endswith("/google.rpc.RetryInfo") for detail in details)
