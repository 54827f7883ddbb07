"""Runs a suite against a program in a sandbox. A second sandbox compares the program's answers.

The program's sandbox receives only inputs. This process passes on, unread, what the program wrote
or returned: to the grader, which knows the expected output, or to the task's own test code. So a
program that takes over its whole sandbox can change its answers, but not its verdict. An answer
that needs all time or memory to read ends the grader, not the service.

After the program has started, every event leads to a verdict of 0, with the reason. Before, it is a
failure of the sandbox or of the task. As in NeMo Gym, the first test that fails ends the suite.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from gymmesh_resource.environments.code.frames import (
    ANSWER,
    ERROR_LIMIT,
    EXPECTED,
    HELLO,
    ORDER,
    OUTPUT_LIMIT,
    PASSED,
    READY,
    TEST,
    UNUSABLE,
    frame,
)
from gymmesh_resource.environments.code.program_time import OutOfTime, ProgramTime
from gymmesh_resource.environments.code.suites import CallSuite, CheckSuite, StdioSuite, Suite
from gymmesh_resource.errors import TaskInvalid
from gymmesh_resource.sandbox import Limits, Program, Running, Sandbox, SandboxError

# JSON escapes make six characters of one.
_FRAME_LIMIT = 6 * OUTPUT_LIMIT + 65_536
_START_S = 20.0
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Judgement:
    """The number of tests, how many passed, and the problem of the first test that failed."""

    tests: int
    passed: int
    problem: str = ""
    detail: str = ""


class _Failed(Exception):
    """The program did not pass: the problem and its detail."""

    def __init__(self, problem: str, detail: str) -> None:
        self.problem = problem
        self.detail = detail
        super().__init__(problem)


async def judge(
    sandbox: Sandbox,
    suite: Suite,
    source: str,
    *,
    limits: Limits,
    test_s: float,
    suite_s: float,
    clock_s: float = math.inf,
    last_s: float = 0.0,
    nemo: bool = False,
) -> Judgement:
    """Test a program.

    `test_s`: seconds for each test; a task's test code is one test. `suite_s`: seconds for all
    tests. Waiting for a processor does not count in either (see `ProgramTime`). `clock_s`,
    `last_s`: seconds of the clock for all tests. `nemo`: answers are compared as NeMo Gym compares
    them, and `sys.exit(1)` is a normal end.

    Raises `SandboxError`, `TaskInvalid` for test code that does not run, and `Starved` if the
    machine was too busy for a verdict within `clock_s`.
    """
    tests = 1 if isinstance(suite, CheckSuite) else len(suite.cases)
    passed = 0
    async with _programs(sandbox, suite, limits, nemo) as (program, checker):
        time = ProgramTime((program, checker), suite_s, clock_s, last_s)
        try:
            async with time.limit(test_s):
                await _load(program, suite, source, any_exit=nemo)
            if isinstance(suite, CheckSuite):
                async with time.limit(test_s):
                    await _check(program, checker)
                return Judgement(1, 1)
            for given, expected in suite.cases:
                test = {"stdin" if isinstance(suite, StdioSuite) else "lines": given}
                async with time.limit(test_s):
                    answer = await _answer(program, _json(test))
                async with time.limit():
                    await _grade(checker, answer, expected, suite)
                passed += 1
        except _Failed as failed:
            return Judgement(tests, passed, failed.problem, failed.detail)
        except OutOfTime as late:
            return Judgement(tests, passed, "time limit exceeded", str(late))
    return Judgement(tests, passed)


@asynccontextmanager
async def _programs(
    sandbox: Sandbox, suite: Suite, limits: Limits, nemo: bool
) -> AsyncIterator[tuple[Running, Running]]:
    """A driver that waits for its order, and a checker that is ready."""
    if isinstance(suite, CheckSuite):
        checker = _python("harness.py", "frames.py")
        order: dict[str, Any] = {"helpers": suite.prompt, "test": suite.test, "entry": suite.entry}
    else:
        checker = _python("grader.py", "compare.py", "frames.py")
        order = {"kind": "stdio" if isinstance(suite, StdioSuite) else "call", "nemo": nemo}
    async with sandbox.start(driver(), limits) as program, sandbox.start(checker, limits) as check:
        try:
            async with asyncio.timeout(_START_S):
                for started in (program, check):
                    if await _receive(started, "of the sandbox") != (HELLO, b""):
                        raise SandboxError(
                            "The process in the sandbox did not report that it is ready."
                        )
                await _send(check, ORDER, _json(order))
                kind, body = await _receive(check, "of the checker")
        except (_Failed, TimeoutError) as error:
            raise SandboxError(f"The sandbox did not start: {error or 'no answer'}.") from error
        if kind == UNUSABLE and isinstance(suite, CheckSuite):
            raise TaskInvalid("test", _text(body))
        if kind != READY:
            raise SandboxError("The process in the sandbox did not report that it is ready.")
        yield program, check


async def _load(program: Running, suite: Suite, source: str, any_exit: bool) -> None:
    """Let the driver compile and import the program."""
    order: dict[str, Any] = {"kind": "stdio", "prelude": True, "source": source}
    order["any_exit"] = any_exit
    if not isinstance(suite, StdioSuite):
        order |= {"kind": "call", "entry": suite.entry}
    if isinstance(suite, CheckSuite):
        order |= {"prelude": False, "prompt": suite.prompt}
    await _send(program, ORDER, _json(order))
    kind, body = await _receive(program, "of the program")
    if kind != READY:
        raise _Failed("runtime error", _text(body))


async def _answer(program: Running, test: bytes) -> bytes:
    await _send(program, TEST, test)
    kind, body = await _receive(program, "of the program")
    if kind != ANSWER:
        raise _Failed(
            "runtime error",
            "the program wrote to its answer channel before a test asked for an answer",
        )
    return body


async def _grade(
    grader: Running, answer: bytes, expected: str, suite: StdioSuite | CallSuite
) -> None:
    wanted = (
        expected.encode("utf-8", "surrogatepass")
        if isinstance(suite, CallSuite)
        else _json(expected)
    )
    await _send(grader, EXPECTED, wanted)
    await _send(grader, ANSWER, answer)
    try:
        kind, body = await _receive(grader, "of the grader")
    except _Failed:
        detail = "the answer takes too much memory or time to compare"
        raise _Failed("wrong answer", detail) from None
    if kind != PASSED:
        raise _failed(body)


async def _check(program: Running, harness: Running) -> None:
    """Let the test code ask the program until it has come to an end."""
    while True:
        try:
            kind, body = await _receive(harness, "of the test code")
        except _Failed:
            detail = "the answer takes too much memory or time to read"
            raise _Failed("wrong answer", detail) from None
        if kind == PASSED:
            return
        if kind == UNUSABLE:
            raise TaskInvalid("test", _text(body))
        if kind != TEST:
            raise _failed(body)
        await _send(harness, ANSWER, await _answer(program, body))


def _failed(body: bytes) -> _Failed:
    problem, _, detail = _text(body).partition("\n")
    return _Failed(problem, detail)


def driver() -> Program:
    """The program that runs a candidate in its sandbox."""
    return _python("driver.py", "extract.py", "frames.py")


@cache
def _python(*files: str) -> Program:
    argv = ("{python}", "-I", "-S", f"/app/{files[0]}")
    folder = resources.files(__package__)
    # It says hello and waits: nothing of a candidate's is there when it is started ahead.
    return Program(argv, {name: (folder / name).read_bytes() for name in files}, waiting=argv)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


async def _send(program: Running, kind: bytes, body: bytes) -> None:
    await program.write(frame(kind, body))


async def _receive(program: Running, whose: str) -> tuple[bytes, bytes]:
    """The next frame's kind and body, not yet checked."""
    try:
        size = int.from_bytes(await program.read_exactly(4), "big")
        if not 0 < size <= _FRAME_LIMIT:
            raise _Failed("runtime error", "too much output")
        data = await program.read_exactly(size)
    except EOFError:
        raise _Failed("runtime error", f"the process {whose} ended before the test ended") from None
    return data[:1], data[1:]


def _text(body: bytes) -> str:
    text = body[:ERROR_LIMIT].decode("utf-8", "replace")
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}…{text[-_SHOWN // 2 :]}"
