"""Runs cases against a subject: a path to the server under test and what is known about it.

A step calls an RPC and says what is expected:

    call: resource.CreateSession     the RPC
    request: {…}                     proto JSON
    timeout: 5                       the deadline in seconds; `longer_by: 5`: added to it
    set: {task.tags.x: y}            values put into the request, by path
    metadata: {key: value}           metadata of the call, over plain gRPC
    unknown_field: 5000000           the request has a field of so many bytes that nobody knows
    pause: 0.1                       seconds to wait before the call, to let another one begin
    expect: {response: {…}}          what the answer has at least (the default: any success)
            {error: {code, reason, metadata, usage}}
            {kinds: […]}             the exact kinds of a stream's events or frames
            {events: […]}            events that come in this order, others in between
            {without: […]}           kinds that do not come
            {gathered: {…}}          what the pieces of a stream come to (cases/gathering.py)
            {any_of: [expect, …]}    one of these
    same_as: name                    the whole answer, or error, equals the one saved under that
                                     name
    within: 5                        repeats the call until it is as expected, so many seconds
    save: {variable: path}           takes values out of the answer, such as `tools.0.name`, or of
                                     what is `gathered`
    save_answer: name                keeps the whole answer
    shares: true                     the case's other calls use its script too: the record of what
                                     the model saw is not only this call's
    cancel_when: {…}                 cancels the stream once the world's record matches

`times: N` repeats a step, with the variable `time` from 0. `together: [step, …]` runs steps side
by side; `pages: RPC` with `of: field` walks a listing in pages of one and of the server's own size
and compares, with `by: field` only that field of each. A step with `talk` is a connection of a
collector (see talks.py), one with `watch` and the like is of a watch (see watches.py), those with
`open`, `in`, `gone` and `unchanged` are of sandboxes (see sandboxes.py), one with `raw` or `health`
is below the contract's messages (see probes.py). `stop: true` tells the server to go
down while the step under `running` runs: its health becomes NOT_SERVING, and the step under
`refused` is for new work; those under `held` are for what callers hold there, and follow. Every
answer and error goes through the laws besides.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message

from gymmesh.agent.v1 import agent_pb2
from gymmesh_conformance import laws
from gymmesh_conformance.cases import (
    Answer,
    Case,
    CaseError,
    difference,
    expectation_problems,
    gathered,
    mismatches,
    render,
    to_plain,
)
from gymmesh_conformance.errors import CallError
from gymmesh_conformance.laws import answer_problems
from gymmesh_conformance.paths import Path
from gymmesh_conformance.scripted import Script, World
from gymmesh_conformance.services import Rpc, rpc, with_unknown_field
from gymmesh_conformance.steps import (
    CALL_S,
    CREATE,
    WATCH_WORDS,
    Collected,
    HealthWatch,
    Sandboxes,
    Talk,
    Watches,
    WirePath,
    check_health,
    gone,
    opening,
    send_raw,
    unchanged,
)

_TIMEOUT_S: Final = 10.0
_OVERTIME_S: Final = 10.0  # how long after its deadline a call may still take to come back
_SETTLE_S: Final = 5.0  # how long the world may take to be as `seen` says
_POLL_S: Final = 0.02
#: Tells the server under test to go down.
Stop = Callable[[], Awaitable[None]]
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True)
class Subject:
    """What is tested: a path to it, the variables that cases use, and the suite's own world.

    `stop` tells the server to go down; None: nobody can.
    """

    path: Path
    variables: Mapping[str, Any]
    world: World | None = None
    stop: Stop | None = None


@dataclass(frozen=True)
class CaseResult:
    """What came of a case: `passed`, `failed` with its problems, or, for what it `lacks`, `skipped`
    or `not shown` (the server does not say what is asked for).
    """

    suite: str
    name: str
    rule: str
    outcome: str
    problems: tuple[str, ...] = ()
    lacks: str = ""
    seconds: float = 0.0


async def run_case(case: Case, subject: Subject) -> CaseResult:
    """Runs one case. Never raises for what the server does; raises CaseError for a bad case."""
    lacks = case.lacks({**subject.variables, "stop": subject.stop})
    if lacks:
        return CaseResult(case.suite, case.name, case.rule, "skipped", lacks=lacks)
    started = time.monotonic()
    run = _Run(case, subject)
    try:
        await run.steps(case.steps)
        await run.settle()
    finally:
        await run.tidy()
    outcome = "failed" if run.problems else "passed"
    seconds = time.monotonic() - started
    problems = tuple(run.problems)
    return CaseResult(case.suite, case.name, case.rule, outcome, problems, seconds=seconds)


class _Run:
    """One run of one case."""

    def __init__(self, case: Case, subject: Subject) -> None:
        self._case = case
        self._path = subject.path
        self._stop = subject.stop
        self._token = secrets.token_hex(4)
        self._id = f"{case.name.replace('_', '-')}-{self._token}"
        self._variables: dict[str, Any] = {**subject.variables, "case": self._id}
        self._answers: dict[str, Answer] = {}
        self._sessions: set[str] = set()
        self._collected = Collected()
        self._watches = Watches(subject.path)
        self._sandboxes = Sandboxes(subject.path, subject.variables.get("create", {}))
        self._goes_down = False  # the server was told to
        self._script: Script | None = None
        self.problems: list[str] = []
        if subject.world is not None:
            world = render(dict(case.world), self._lookup)
            self._script = subject.world.add(self._id, world)

    async def steps(self, steps: list[dict[str, Any]]) -> None:
        """Runs steps in order, up to the first that has problems."""
        for number, step in enumerate(steps, 1):
            for time_ in range(step.get("times", 1)):
                self._variables["time"] = time_
                await self._step(step, f"step {number}")
            if self.problems:
                return

    async def settle(self) -> None:
        """Waits until the world's record is as the case says, and takes in its complaints."""
        if self._script is None:
            return
        if not self.problems:
            expected = render(dict(self._case.seen), self._lookup)
            self.problems += await self._wait_for(expected)
        self.problems += self._script.complaints()

    async def tidy(self) -> None:
        """Closes the sessions and ends the sandboxes of the case, so that none is left."""
        await self._watches.close()
        await self._sandboxes.close()
        close = rpc("resource.CloseSession")
        for session_id in self._sessions:
            request = close.request_class(session_id=session_id)
            with contextlib.suppress(CallError):
                await self._path.unary(close, request, _TIMEOUT_S)

    async def _step(self, step: dict[str, Any], where: str) -> None:
        if "together" in step:
            await asyncio.gather(
                *(
                    self._step(one, f"{where}, call {number}")
                    for number, one in enumerate(step["together"], 1)
                )
            )
        elif "pages" in step:
            await self._pages(rpc(step["pages"]), step, where)
        elif "gone" in step:
            self._add(where, await gone(render(step["gone"], self._lookup)))
        elif "unchanged" in step:
            self._add(where, unchanged(self._lookup("host_secret")))
        elif "open" in step:
            await self._call_step(opening(step), f"{where} ({CREATE})")
        elif "within" in step:
            again = {key: value for key, value in step.items() if key != "within"}
            await self._until(again, where, float(step["within"]))
        elif "raw" in step:
            self._add(f"{where} ({step['raw']})", await send_raw(self._path, step))
        elif "stop" in step:
            await self._stop_step(step, where)
        elif "health" in step:
            self._add(where, await check_health(self._path, step))
        elif any(word in step for word in WATCH_WORDS):
            await self._watch_step(step, where)
        elif "talk" in step:
            await self._talk_step(step, f"{where} ({step['call']})")
        else:
            await self._call_step(step, f"{where} ({step['call']})")

    async def _call_step(self, step: dict[str, Any], where: str) -> None:
        method = rpc(step["call"])
        await asyncio.sleep(step.get("pause", 0))
        request = self._filled_request(method, step)
        if "unknown_field" in step:
            request = with_unknown_field(request, step["unknown_field"])
        before = request.SerializeToString(deterministic=True)
        answer = await self._call(method, request, step, where)
        if answer is None:
            return
        if request.SerializeToString(deterministic=True) != before:
            self._add(where, ["the request was changed by its receiver"])
        self._add(where, self._law_problems(step, answer))
        self._add(where, self._sandboxes.take(step["call"], answer))
        expect = render(step.get("expect", {}), self._lookup)
        if not answer.cancelled:
            self._add(where, expectation_problems(expect, answer))
        if "same_as" in step:
            kept = self._answers[step["same_as"]]
            self._add(where, difference(kept, answer, step.get("except", ())))
        self._save(step, answer, where)

    async def _watch_step(self, step: dict[str, Any], where: str) -> None:
        request = None
        if "watch" in step:
            request = self._request(rpc("discovery.WatchInstances"), step.get("request", {}))
        elif "read_on" in step:
            request = self._request(rpc("discovery.ListInstances"), step["until"])
        shown = step if request is not None else render(dict(step), self._lookup)
        self._add(where, await self._watches.step(shown, request))

    async def _stop_step(self, step: dict[str, Any], where: str) -> None:
        assert self._stop is not None  # the case needs it
        assert isinstance(self._path, WirePath)
        running = asyncio.create_task(self._step(step["running"], f"{where}, running"))
        watch = HealthWatch(self._path)
        try:
            self._add(where, await watch.becomes("SERVING"))
            await asyncio.sleep(step.get("pause", 0.5))  # what is to run has begun
            self._goes_down = True
            await self._stop()
            self._add(where, await watch.becomes("NOT_SERVING"))
            await self._until(step["refused"], f"{where}, refused", _SETTLE_S)
            for number, held in enumerate(step.get("held", ()), 1):
                await self._step(held, f"{where}, held {number}")
            await running
        finally:
            running.cancel()
            await watch.close()

    async def _until(self, step: dict[str, Any], where: str, seconds: float) -> None:
        """Runs a step until its answer is as expected, which need not be at once."""
        end = time.monotonic() + seconds
        while True:
            await self._step(step, where)
            others = [problem for problem in self.problems if not problem.startswith(where)]
            if others == self.problems or time.monotonic() > end:
                return
            self.problems = others
            await asyncio.sleep(_POLL_S)

    async def _talk_step(self, step: dict[str, Any], where: str) -> None:
        await asyncio.sleep(step.get("pause", 0))
        talk = Talk(self._path, self._collected)
        answer = Answer(agent_pb2.CollectRequest())
        try:
            for action in step["talk"]:
                problems = await self._act(talk, *next(iter(action.items())))
                self._add(where, [*problems, *talk.problems])
                if problems or talk.problems:
                    return
        finally:
            await talk.close()
        answer.error = talk.error
        self._add(where, laws.error_problems(talk.error) if talk.error else [])
        expect = render(step.get("expect", {}), self._lookup)
        self._add(where, expectation_problems(expect, answer))
        self._add(where, self._collected.problems(render(step.get("rollouts", {}), self._lookup)))

    async def _act(self, talk: Talk, action: str, value: Any) -> list[str]:
        if action == "say":
            message = self._request(rpc("agent.Collect"), value)
            assert isinstance(message, agent_pb2.CollectRequest)
            talk.say(message)
        elif action == "hear":
            return await talk.hear(render(value, self._lookup))
        elif action == "save":
            self._variables |= talk.take(value, _walk)
        elif action == "forget":
            self._collected.forget(int(render(value, self._lookup)))
        elif action == "quiet":
            return await talk.quiet(float(value))
        elif action == "loads":
            return await talk.loads(int(value))
        elif action == "finish":
            return await talk.finish()
        elif action == "drop":
            await talk.close()
        else:
            raise CaseError(f"case '{self._case.name}': a talk has no action '{action}'")
        return []

    def _save(self, step: dict[str, Any], answer: Answer, where: str) -> None:
        if "save_answer" in step:
            self._answers[step["save_answer"]] = answer
        if answer.error is not None or not answer.responses:
            return
        if "open" in step:
            self._variables[step["open"]] = self._sandboxes.variables(answer)
        for name, path in step.get("save", {}).items():
            try:
                value = _walk(gathered(answer.responses) or to_plain(answer.responses[-1]), path)
                self._variables[render(name, self._lookup)] = value
            except LookupError:
                self._add(where, [f"the answer has no {path}"])

    async def _call(
        self, method: Rpc, request: Message, step: dict[str, Any], where: str
    ) -> Answer | None:
        answer = Answer(request)
        usual = CALL_S if "in" in step else _TIMEOUT_S
        timeout = float(render(step.get("timeout", usual), self._lookup))
        timeout += float(render(step.get("longer_by", 0), self._lookup))
        path = self._path
        if "metadata" in step:
            assert isinstance(path, WirePath)
            path = path.sending(render(step["metadata"], self._lookup))
        work = asyncio.create_task(self._collect(path, method, answer, timeout))
        try:
            async with asyncio.timeout(timeout + _OVERTIME_S):
                if "cancel_when" in step:
                    expected = render(step["cancel_when"], self._lookup)
                    self._add(where, await self._wait_for(expected))
                    answer.cancelled = True
                    work.cancel()
                    await asyncio.gather(work, return_exceptions=True)
                else:
                    await work
        except TimeoutError:
            self._add(where, [f"nothing came back {_OVERTIME_S:.0f} s after the deadline"])
            return None
        finally:
            work.cancel()
        return answer

    async def _collect(self, path: Path, method: Rpc, answer: Answer, timeout: float) -> None:
        try:
            if not method.streams_down:
                response: Any = await path.unary(method, answer.request, timeout)
                answer.responses.append(response)
                if method.method.name == "CreateSession":
                    self._sessions.add(response.session_id)
                return
            stream: Any = path.stream(method, answer.request, timeout)
            async with aclosing(stream):
                async for response in stream:
                    answer.responses.append(response)
        except CallError as error:
            answer.error = error

    async def _pages(self, method: Rpc, step: dict[str, Any], where: str) -> None:
        whole = await self._walk_pages(method, step, 0, where)
        single = await self._walk_pages(method, step, 1, where)
        if "by" in step and whole is not None and single is not None:
            whole, single = ([one[step["by"]] for one in found] for found in (whole, single))
        if whole is not None and single is not None and whole != single:
            self._add(where, ["pages of one give another list than pages of the server's size"])

    async def _walk_pages(
        self, method: Rpc, step: dict[str, Any], size: int, where: str
    ) -> list[Any] | None:
        field_name = step["of"]
        found: list[Any] = []
        token = ""
        seen: set[str] = set()
        while token not in seen:
            seen.add(token)
            asked = {"page_size": size, "page_token": token}
            request = self._filled_request(method, step, asked)
            answer = await self._call(method, request, {}, where)
            if answer is None or answer.error is not None:
                self._add(where, [f"page after {len(found)} elements: {answer and answer.error}"])
                return None
            (page,) = answer.plain()
            if size and len(page[field_name]) > size:
                self._add(where, [f"a page of at most {size} has {len(page[field_name])}"])
            found += page[field_name]
            token = page["next_page_token"]
            if not token:
                return found
        self._add(where, [f"the page token {token!r} came before"])
        return None

    def _law_problems(self, step: Mapping[str, Any], answer: Answer) -> list[str]:
        name = step["call"]
        if answer.error is not None:
            library = self._goes_down and answer.error.status is None
            if library and answer.error.code is grpc.StatusCode.UNAVAILABLE:
                return []  # a graceful stop of the server's gRPC library gives no reason
            return laws.error_problems(answer.error)
        if answer.cancelled:
            return []
        problems = answer_problems(name, answer.request, answer.responses)
        if name == "agent.RunRollout" and self._script is not None and "shares" not in step:
            events = [one.event for one in answer.responses]  # type: ignore[attr-defined]  # RunRolloutResponse
            asked = self._script.verify_requests
            transcript = asked[-1].transcript if asked else None
            # What breaks the stream law may not even have a conversation.
            problems = problems or laws.conversation_problems(
                events, self._script.answered, transcript
            )
        return problems

    async def _wait_for(self, expected: Any) -> list[str]:
        assert self._script is not None
        problems: list[str] = []
        end = time.monotonic() + _SETTLE_S
        while time.monotonic() < end:
            problems = mismatches(expected, self._script.record(), "seen")
            if not problems:
                return []
            await asyncio.sleep(_POLL_S)
        return problems

    def _filled_request(
        self, method: Rpc, step: Mapping[str, Any], others: Mapping[str, Any] = NOTHING
    ) -> Message:
        data = self._sandboxes.filled(method, step, self._lookup)
        return self._request(method, data, {**step.get("set", {}), **others})

    def _request(self, method: Rpc, data: Any, others: Mapping[str, Any] = NOTHING) -> Message:
        try:
            rendered = render(data, self._lookup)
            for path, value in others.items():
                rendered = _with(rendered, path.split("."), render(value, self._lookup))
            return json_format.ParseDict(rendered, method.request_class())
        except (json_format.ParseError, LookupError) as exc:
            raise CaseError(f"{self._case.suite}, case '{self._case.name}': {exc}") from exc

    def _lookup(self, name: str) -> Any:
        kind, _, label = name.partition(":")
        if label:
            if kind != "id":
                raise LookupError(f"there is no variable '{name}'")
            return f"{label}-{self._token}"
        return _walk(self._variables, name)

    def _add(self, where: str, problems: list[str]) -> None:
        self.problems += [f"{where}: {problem}" for problem in problems]


def _with(data: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    first, *rest = path
    return {**data, first: _with(data.get(first) or {}, rest, value) if rest else value}


def _walk(data: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(data, list):
            data = data[int(part)]
        elif isinstance(data, Mapping) and part in data:
            data = data[part]
        else:
            raise LookupError(f"there is no variable '{path}'")
    return data
