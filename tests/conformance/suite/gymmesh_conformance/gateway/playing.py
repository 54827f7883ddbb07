"""Plays recorded sessions over a gateway, and judges what it captured.

Each session makes two results: what was captured and how the calls hang together, and what a
trainer would train on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from gymmesh_conformance.gateway.adapter import (
    AdapterError,
    GatewayAdapter,
    OpenRollout,
    Script,
    TokenRollout,
    WrittenAnswer,
    WrittenCall,
    apis_of,
)
from gymmesh_conformance.gateway.judging import Judged, judged_calls, judged_tokens
from gymmesh_conformance.gateway.sessions import (
    RecordedProgram,
    SessionCase,
    Step,
    load_sessions,
)
from gymmesh_conformance.gateway.wire import (
    Piece,
    ReadAnswer,
    body_of,
    key_header,
    path_of,
    pieces_of,
    read_answer,
)
from gymmesh_conformance.runner import CaseResult

SUITE: Final = "gateway"
TOKENS: Final = "gateway-tokens"
_TOKEN_RULE: Final = (
    "Every token that the policy sampled in a conversation is trained once, behind the prompt that "
    "the model read; those of side calls are not; and the prompt of a call that continues another "
    "begins with that one's tokens."
)
_CASE_S: Final = 120.0
_SHOWN: Final = 400


class PlayError(Exception):
    """A program could not be played: the gateway's answer is wrong."""


@dataclass
class _Played:
    """What came of a case's steps so far."""

    answers: dict[str, ReadAnswer] = field(default_factory=dict)
    histories: dict[str, list[Piece]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)  # the steps that are calls of their own


def select_gateway_cases(only: Sequence[str]) -> list[tuple[RecordedProgram, SessionCase]]:
    """The cases, or those named. Raises LookupError for a name that there is not."""
    every = [(program, case) for program in load_sessions() for case in program.cases]
    names = {_name(program, case) for program, case in every}
    if unknown := sorted(set(only) - names):
        raise LookupError(f"the gateway suite has no case {', '.join(unknown)}")
    return [one for one in every if not only or _name(*one) in only]


async def run_gateway_suite(
    adapter: GatewayAdapter,
    *,
    only: Sequence[str] = (),
    report: Callable[[CaseResult], None] = lambda _: None,
) -> list[CaseResult]:
    """Play the sessions, one rollout each: two results of each. Never raises for what the gateway
    does. Cases of APIs that the gateway does not offer are skipped.
    """
    results = []
    apis = apis_of(adapter)
    for program, case in select_gateway_cases(only):
        if program.dialect not in apis:
            for suite, rule in ((SUITE, case.rule), (TOKENS, _TOKEN_RULE)):
                lacks = f"the API '{program.dialect}'"
                name = _name(program, case)
                results.append(CaseResult(suite, name, rule, "skipped", lacks=lacks))
                report(results[-1])
            continue
        began = time.monotonic()
        try:
            async with asyncio.timeout(_CASE_S):
                calls, tokens = await _run_case(adapter, program, case)
        except TimeoutError:
            calls, tokens = _unplayed(f"the session took more than {_CASE_S:g} s")
        except (PlayError, AdapterError, aiohttp.ClientError, OSError) as error:
            calls, tokens = _unplayed(f"{type(error).__name__}: {error}")
        seconds = time.monotonic() - began
        name = _name(program, case)
        for result in (
            _result(SUITE, name, case.rule, calls, seconds),
            _result(TOKENS, name, _TOKEN_RULE, tokens, 0.0),
        ):
            report(result)
            results.append(result)
    return results


def _result(suite: str, name: str, rule: str, judged: Judged, seconds: float) -> CaseResult:
    outcome = "failed" if judged.problems else "not shown" if judged.lacks else "passed"
    lacks = judged.lacks if outcome == "not shown" else ""
    return CaseResult(suite, name, rule, outcome, judged.problems, lacks, seconds)


def _unplayed(problem: str) -> tuple[Judged, Judged]:
    return Judged((problem,)), Judged(lacks="the session did not come to its end")


def _name(program: RecordedProgram, case: SessionCase) -> str:
    return f"{program.program}/{case.name}"


async def _run_case(
    adapter: GatewayAdapter, program: RecordedProgram, case: SessionCase
) -> tuple[Judged, Judged]:
    script, played = Script(), _Played()
    async with adapter.rollout(script, program.program) as rollout:
        async with aiohttp.ClientSession() as session:
            for step in case.steps:
                await _Request(session, rollout, script, program, step, played).play()
        caught = await rollout.finish()
        samples = await rollout.samples() if isinstance(rollout, TokenRollout) else None
    if script.asked != len(played.calls):
        return _unplayed(
            f"the model was asked {script.asked} times, {len(played.calls)} calls are right"
        )
    if len(caught) != len(played.calls):
        return _unplayed(f"{len(caught)} calls were captured, {len(played.calls)} are right")
    expected = {step.ask: step.expect for step in case.steps}
    return (
        judged_calls(caught, played.calls, expected),
        judged_tokens(caught, samples, script.sampled, played.calls, expected),
    )


class _Request:
    """One step's request."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        rollout: OpenRollout,
        script: Script,
        program: RecordedProgram,
        step: Step,
        played: _Played,
    ) -> None:
        self._session = session
        self._script = script
        self._program = program
        self._step = step
        self._played = played
        self._pieces = pieces_of(step.history, played.histories, played.answers)
        self._url = rollout.url.rstrip("/") + path_of(program)
        self._headers = {
            **key_header(program.dialect, rollout.key),
            **program.headers,
            **step.headers,
        }

    async def play(self) -> None:
        """Send it, and keep what came. Raises PlayError."""
        step, played = self._step, self._played
        played.histories[step.ask] = self._pieces
        if not step.expect.repeats:
            played.calls.append(step.ask)
            answer = step.answer
            if answer is None:
                raise PlayError(f"step {step.ask}: the case has no answer")
            calls = tuple(WrittenCall(call.name, call.arguments) for call in answer.calls)
            self._script.write(WrittenAnswer(answer.text, calls, answer.reasoning))
        if step.cut:
            await self._hang_up()
            return
        got = await self._sent()
        played.answers[step.ask] = got
        self._check(got)

    async def _hang_up(self) -> None:
        """Close the connection while the model works, which then answers."""
        before = self._script.asked
        self._script.hold()
        sending = asyncio.create_task(self._sent())
        asked = asyncio.create_task(self._script.asked_for(before + 1))
        try:
            done, _ = await asyncio.wait({sending, asked}, return_when=asyncio.FIRST_COMPLETED)
            if sending in done:
                sending.result()
                raise PlayError(f"step {self._step.ask}: an answer came before the model was asked")
            asked.result()
        except TimeoutError:
            raise PlayError(f"step {self._step.ask}: the model was not asked") from None
        finally:
            for task in (sending, asked):
                task.cancel()
            await asyncio.gather(sending, asked, return_exceptions=True)
        await self._script.release()

    async def _sent(self) -> ReadAnswer:
        body = body_of(self._program, self._step, self._pieces)
        async with self._session.post(self._url, json=body, headers=self._headers) as response:
            text = await response.text()
            if response.status != 200:
                raise PlayError(f"step {self._step.ask}: {response.status} {text[:_SHOWN]}")
            try:
                return read_answer(self._program.dialect, response.content_type, text)
            except (ValueError, LookupError, TypeError) as error:
                shown = f"{type(error).__name__} {error} in {text[:_SHOWN]}"
                problem = f"step {self._step.ask}: an answer that no client reads: {shown}"
                raise PlayError(problem) from error

    def _check(self, got: ReadAnswer) -> None:
        """The program must get what the model wrote."""
        step = self._step
        if step.expect.repeats:
            before = self._played.answers.get(step.expect.repeats)
            if before is not None and _said(before) != _said(got):
                raise PlayError(f"step {step.ask}: another answer than {step.expect.repeats} got")
            self._played.answers.setdefault(step.expect.repeats, got)
            return
        assert step.answer is not None
        wrote = (step.answer.text, tuple(call.name for call in step.answer.calls))
        if (got.text, tuple(call.name for call in got.calls)) != wrote:
            raise PlayError(
                f"step {step.ask}: the program got {_said(got)}, the model wrote {wrote}"
            )


def _said(answer: ReadAnswer) -> tuple[str, tuple[tuple[str, str], ...]]:
    return answer.text, tuple((call.name, call.arguments) for call in answer.calls)
