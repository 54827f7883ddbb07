"""Runs a suite against a program in the sandbox and compares, on this side of the wall.

The program's side is given inputs only. What comes back is what the program wrote or returned;
the expected outputs, and the verdict, never leave this process (or, for test code, the second
sandbox). A program that takes over its whole sandbox can thus give other answers, not other
verdicts. As in NeMo Gym, the first test that fails ends the suite.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from gymmesh_resource.errors import TaskInvalid
from gymmesh_resource.sandbox import Limits, Program, Running, Sandbox, SandboxError

from .compare import same_output, same_value
from .driver import OUTPUT_LIMIT, decode, encode
from .extract import defines
from .suites import CallSuite, CheckSuite, StdioSuite, Suite

__all__ = ["Judgement", "driver", "judge"]

# JSON escapes make six characters of one.
_FRAME_LIMIT = 6 * OUTPUT_LIMIT + 65_536
_START_S = 10.0
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Judgement:
    """How many tests there were and passed, and what came of the first that did not."""

    passed: int
    tests: int
    problem: str = ""
    detail: str = ""

    @property
    def reward(self) -> float:
        """1.0 when all tests passed, else 0.0."""
        return float(self.passed == self.tests and not self.problem)


class _Ended(Exception):
    """The program's side fell silent or told nonsense: a failure of the program."""


async def judge(
    sandbox: Sandbox, suite: Suite, source: str, *, limits: Limits, test_s: float
) -> Judgement:
    """Test a program. `test_s`: seconds for each test; for test code, in all.

    Raises `SandboxError`, or `TaskInvalid` for test code that does not run.
    """
    tests = 1 if isinstance(suite, CheckSuite) else len(suite.cases)
    passed = 0
    try:
        if isinstance(suite, CheckSuite):
            return await _check(sandbox, suite, source, limits, test_s)
        async with _driver(sandbox, _order(suite, source), limits, test_s) as program:
            for case in suite.cases:
                problem = await _run_case(program, suite, case, test_s)
                if problem:
                    return Judgement(passed, tests, *problem)
                passed += 1
    except _Ended as ended:
        return Judgement(passed, tests, "runtime error", str(ended))
    except TimeoutError:
        return Judgement(passed, tests, "time limit exceeded", f"{test_s:g} s a test")
    return Judgement(passed, tests)


async def _run_case(
    program: Running, suite: StdioSuite | CallSuite, case: tuple[Any, Any], test_s: float
) -> tuple[str, str] | None:
    """The problem and its detail, or None when the test passed."""
    given, expected = case
    asked = {"stdin": given} if isinstance(suite, StdioSuite) else {"args": encode(given)["l"]}
    async with asyncio.timeout(test_s):
        answer = await _ask(program, asked)
    if isinstance(suite, CallSuite):
        if "value" not in answer:
            return "runtime error", _short(answer.get("error"))
        value = _decoded(answer["value"])
        return None if same_value(value, expected) else ("wrong answer", _short(value))
    output = answer.get("stdout")
    if answer.get("exit") != 0 or not isinstance(output, str):
        return "runtime error", _short(answer.get("error") or f"exit code {answer.get('exit')}")
    if len(output) > OUTPUT_LIMIT:
        return "wrong answer", "too much output"
    return None if same_output(output, expected) else ("wrong answer", _short(output))


async def _check(
    sandbox: Sandbox, suite: CheckSuite, source: str, limits: Limits, test_s: float
) -> Judgement:
    whole = defines(source, suite.entry)
    sources = [suite.prompt, source] if whole else [suite.prompt + source]
    order = {"kind": "call", "prelude": False, "sources": sources, "entry": suite.entry}
    test = {"helpers": suite.prompt, "test": suite.test, "entry": suite.entry}
    async with (
        _driver(sandbox, order, limits, test_s) as program,
        _harness(sandbox, test, limits) as check,
    ):
        async with asyncio.timeout(test_s):
            while True:
                said = await _receive(check)
                if "args" not in said:
                    break
                await _send(check, _answer(await _ask(program, said)))
    if "unusable" in said:
        raise TaskInvalid("test", f"does not run: {_short(said['unusable'])}")
    if said.get("passed") is True:
        return Judgement(1, 1)
    return Judgement(0, 1, "wrong answer", _short(said.get("failed")))


def _answer(answer: dict[str, Any]) -> dict[str, Any]:
    """A candidate's answer in the shape that the harness reads, whatever the candidate wrote."""
    if "value" in answer:
        _decoded(answer["value"])
        return {"value": answer["value"]}
    return {"error": _short(answer.get("error")), "type": str(answer.get("type"))}


def _decoded(value: Any) -> Any:
    try:
        return decode(value)
    except (TypeError, ValueError, KeyError, RecursionError, AttributeError):
        raise _Ended("a value that cannot be read") from None


def _order(suite: StdioSuite | CallSuite, source: str) -> dict[str, Any]:
    if isinstance(suite, StdioSuite):
        return {"kind": "stdio", "prelude": True, "sources": [source]}
    return {"kind": "call", "prelude": True, "sources": [source], "entry": suite.entry}


@asynccontextmanager
async def _driver(
    sandbox: Sandbox, order: dict[str, Any], limits: Limits, import_s: float
) -> AsyncIterator[Running]:
    async with sandbox.start(driver(), limits) as program:
        await _greeted(program)
        async with asyncio.timeout(import_s):
            answer = await _ask(program, order)
        if answer.get("ready") is not True:
            raise _Ended(_short(answer.get("error")))
        yield program


@asynccontextmanager
async def _harness(
    sandbox: Sandbox, order: dict[str, Any], limits: Limits
) -> AsyncIterator[Running]:
    async with sandbox.start(_python("harness.py", ["driver.py", "harness.py"]), limits) as check:
        await _greeted(check)
        await _send(check, order)
        yield check


async def _greeted(program: Running) -> None:
    """Before a line of the candidate's is run, silence is the sandbox's fault."""
    try:
        async with asyncio.timeout(_START_S):
            greeting = await _receive(program)
    except (_Ended, TimeoutError) as error:
        raise SandboxError(f"The sandbox did not start: {error or 'no answer'}.") from error
    if greeting != {"hello": True}:
        raise SandboxError("The sandbox did not start as it should.")


@cache
def _source(name: str) -> bytes:
    return resources.files(__package__).joinpath(name).read_bytes()


def driver() -> Program:
    """What runs a candidate."""
    return _python("driver.py", ["driver.py"])


def _python(main: str, files: Sequence[str]) -> Program:
    argv = ("{python}", "-I", "-S", f"/app/{main}")
    # It says hello and waits: nothing of a candidate's is there when it is started ahead.
    return Program(argv, {name: _source(name) for name in files}, waiting=argv)


async def _ask(program: Running, frame: dict[str, Any]) -> dict[str, Any]:
    await _send(program, frame)
    return await _receive(program)


async def _send(program: Running, frame: dict[str, Any]) -> None:
    data = json.dumps(frame).encode()
    await program.write(len(data).to_bytes(4, "big") + data)


async def _receive(program: Running) -> dict[str, Any]:
    try:
        size = int.from_bytes(await program.read_exactly(4), "big")
        if size > _FRAME_LIMIT:
            raise _Ended("too much output")
        frame = json.loads(await program.read_exactly(size))
    except EOFError:
        raise _Ended("the program ended before its test did") from None
    except (ValueError, RecursionError):
        raise _Ended("an answer that cannot be read") from None
    if not isinstance(frame, dict):
        raise _Ended("an answer that cannot be read")
    return frame


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}…{text[-_SHOWN // 2 :]}"
