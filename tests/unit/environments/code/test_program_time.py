"""The time that a program has: what a busy machine takes from it is given back, and no more."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from gymmesh_agent.config import AgentConfig
from gymmesh_resource.environments.code import CodeEnvironment
from gymmesh_resource.environments.code.judge import Judgement, judge
from gymmesh_resource.environments.code.program_time import ProgramTime, Starved, Waits
from gymmesh_resource.environments.code.suites import suite_of
from gymmesh_resource.sandbox import BubblewrapSandbox, Limits, ProgramThread, Running
from gymmesh_responses import new_message
from gymmesh_runtime.errors import MeshError
from tests.unit.environments.code.suites import unit_tests
from tests.unit.resource.served import Served, served, task
from tests.unit.sandbox.machine import require_bubblewrap

require_bubblewrap()

pytestmark = pytest.mark.long

_SUITE = suite_of(unit_tests(["1\n"], ["1\n"]))
_HOG = "import os\nos.write(1, b'.')\nwhile True: pass"
_WORK = """
import time
began = time.process_time()
while time.process_time() - began < {seconds}: pass
print(input())
"""
_STORM = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(8):
    if os.fork() == 0: break
while True: pass
"""
_YIELDING = "import os\nos.nice(19)\nwhile True: pass"


def _busy(processors: set[int]) -> subprocess.Popen[bytes]:
    """A process that never rests, on these processors."""
    return subprocess.Popen(
        [sys.executable, "-c", _HOG],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.sched_setaffinity(0, processors),
    )


@asynccontextmanager
async def _one_processor(hogs: int) -> AsyncIterator[BubblewrapSandbox]:
    """A sandbox whose programs share one processor with so many others that never rest."""
    processor = {min(os.sched_getaffinity(0))}
    sandbox = BubblewrapSandbox(concurrency=2)
    others = [_busy(processor) for _ in range(hogs)]
    try:
        for other in others:
            assert other.stdout
            await asyncio.to_thread(other.stdout.read, 1)
        await sandbox.open()
        # Programs have the processors of the process that starts them.
        os.sched_setaffinity(sandbox.spawner_pid, processor)
        yield sandbox
    finally:
        await sandbox.close()
        for other in others:
            other.kill()
            other.communicate()


async def _judged(sandbox: BubblewrapSandbox, program: str, test_s: float) -> Judgement:
    limits = Limits(cpu_s=600)
    return await judge(sandbox, _SUITE, program, limits=limits, test_s=test_s, suite_s=600.0)


async def test_a_program_is_not_slow_because_others_take_its_processor() -> None:
    async with _one_processor(hogs=4) as sandbox:
        judgement = await _judged(sandbox, _WORK.format(seconds=1.0), test_s=2.0)
    assert judgement == Judgement(1, 1)


async def test_it_still_has_no_more_than_its_time() -> None:
    async with _one_processor(hogs=2) as sandbox:
        judgement = await _judged(sandbox, _WORK.format(seconds=600.0), test_s=1.0)
    assert judgement == Judgement(1, 0, "time limit exceeded", "1 s")


@pytest.mark.parametrize("program", [_STORM, _YIELDING], ids=["storm", "yielding"])
async def test_a_program_that_makes_itself_wait_is_too_slow(program: str) -> None:
    # Given back without end, its time would only be over with that of the whole verdict.
    async with _one_processor(hogs=2) as sandbox, asyncio.timeout(240.0):
        judgement = await _judged(sandbox, program, test_s=2.0)
    assert judgement == Judgement(1, 0, "time limit exceeded", "2 s")


async def test_loops_do_not_keep_each_other_from_their_verdicts() -> None:
    loop = new_message("assistant", "```python\nwhile True: pass\n```")
    row = task(**unit_tests(["1\n"], ["1\n"]))
    environment = CodeEnvironment(
        concurrency=4, warm=0, test_timeout_s=1.0, suite_timeout_s=2.0, memory_mb=256
    )
    # All of them need six times as long as one verdict may take by the clock.
    async with _busy_environment(environment, hogs=2, verify_timeout_s=2.5) as mesh:
        calls = [mesh.verify(of=row, transcript=[loop], timeout=600.0) for _ in range(4)]
        verdicts = await asyncio.gather(*calls)
    assert [one.reward for one in verdicts] == [0.0] * 4
    problems = {json.loads(one.evidence_json)["problem"] for one in verdicts}
    assert problems == {"time limit exceeded"}


@asynccontextmanager
async def _busy_environment(
    environment: CodeEnvironment, hogs: int, verify_timeout_s: float
) -> AsyncIterator[Served]:
    """The environment, whose programs share one processor with so many that never rest."""
    processor = {min(os.sched_getaffinity(0))}
    others = [_busy(processor) for _ in range(hogs)]
    try:
        async with served(environment, verify_timeout_s=verify_timeout_s) as mesh:
            sandbox = environment.programs
            assert isinstance(sandbox, BubblewrapSandbox)
            os.sched_setaffinity(sandbox.spawner_pid, processor)
            yield mesh
    finally:
        for other in others:
            other.kill()
            other.communicate()


async def test_a_machine_that_gives_no_time_is_no_verdict() -> None:
    async with _one_processor(hogs=2) as sandbox:
        with pytest.raises(Starved):
            await judge(
                sandbox,
                _SUITE,
                _WORK.format(seconds=600.0),
                limits=Limits(cpu_s=600),
                # Looked at after a twentieth of it at the soonest, when it has had a third of that.
                test_s=20.0,
                suite_s=600.0,
                clock_s=1.0,
            )


async def test_an_agent_waits_for_as_long_as_a_busy_machine_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[float] = []

    async def seen(*arguments: Any, **options: Any) -> Judgement:
        given.append(options["last_s"])
        return Judgement(1, 1)

    monkeypatch.setattr("gymmesh_resource.environments.code.environment.judge", seen)
    environment = CodeEnvironment(warm=0, memory_mb=256)
    row = task(**unit_tests(["1\n"], ["1\n"]))
    answer = new_message("assistant", "```python\nprint(input())\n```")
    async with served(environment) as mesh:
        await mesh.verify(of=row, transcript=[answer], timeout=AgentConfig().verify_timeout_s)
    # Of the clock, for a suite that has 25 s of a processor.
    assert given == [500.0]


@pytest.mark.parametrize("times", [1, 2])
async def test_a_starved_program_is_judged_again_alone(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    async def starved_at_first(*arguments: Any, **options: Any) -> Judgement:
        calls.append(environment._slots._free.locked())
        if len(calls) <= times:
            raise Starved("1.0 s were spent waiting for a processor")
        return await judge(*arguments, **options)

    monkeypatch.setattr("gymmesh_resource.environments.code.environment.judge", starved_at_first)
    environment = CodeEnvironment(concurrency=3, warm=0, memory_mb=256, test_timeout_s=60.0)
    row = task(**unit_tests(["1\n"], ["1\n"]))
    answer = new_message("assistant", "```python\nprint(input())\n```")
    async with served(environment, verify_timeout_s=300.0) as mesh:
        call = mesh.verify(of=row, transcript=[answer], timeout=600.0)
        if times == 1:
            assert (await call).reward == 1.0
        else:
            with pytest.raises(MeshError) as caught:
                await call
            assert caught.value.reason_name == "VERIFIER_TIMEOUT"
            assert "too busy" in caught.value.message
    # The second time it has all places.
    assert calls == [False, True]


async def test_programs_that_wake_each_other_use_their_time_together() -> None:
    ping_pong = """
import os
a, b = os.pipe(), os.pipe()
mine, other = (a, b) if os.fork() else (b, a)
if mine is a: os.write(other[1], b'.')
while os.read(mine[0], 1): os.write(other[1], b'.')
"""
    async with _one_processor(hogs=0) as sandbox, asyncio.timeout(240.0):
        judgement = await _judged(sandbox, ping_pong, test_s=2.0)
    assert judgement == Judgement(1, 0, "time limit exceeded", "2 s")


async def test_a_look_that_fails_ends_the_block() -> None:
    class Unseen:
        def threads(self) -> list[ProgramThread]:
            raise RuntimeError("nothing is seen")

    time = ProgramTime([cast("Running", Unseen())], suite_s=600.0)
    with pytest.raises(RuntimeError, match="nothing is seen"):
        async with time.limit(0.2):
            await asyncio.sleep(600.0)


def _thread(
    number: int, waited_s: float, *, ready: bool = True, yields: bool = False
) -> ProgramThread:
    return ProgramThread(number, ready, waited_s, yields)


def test_what_ran_is_added_up() -> None:
    waits = Waits()
    waits.see([ProgramThread(1, True, 0.0, False, 2.0), ProgramThread(2, True, 0.0, False, 1.0)])
    assert waits.ran_s == 3.0
    waits.see([ProgramThread(2, False, 0.0, False, 1.5), ProgramThread(3, True, 0.0, True, 0.25)])
    assert waits.ran_s == 3.75


def test_waits_are_those_of_one_thread_at_a_time() -> None:
    waits = Waits()
    waits.see([_thread(1, 5.0)])
    assert waits.waited_s == 5.0
    waits.see([_thread(1, 5.5), _thread(2, 0.25, ready=False)])
    assert waits.waited_s == 5.5
    waits.see([_thread(2, 1.0), _thread(1, 6.0, ready=False)])
    assert waits.waited_s == 6.25


@pytest.mark.parametrize(
    "now",
    [
        [_thread(1, 9.0), _thread(2, 0.0)],
        [_thread(1, 9.0, yields=True)],
        [_thread(1, 9.0), _thread(2, 0.0, ready=False, yields=True)],
    ],
)
def test_what_a_program_does_to_itself_is_not_given_back(now: list[ProgramThread]) -> None:
    waits = Waits()
    waits.see([_thread(1, 1.0)])
    waits.see(now)
    assert waits.waited_s == 1.0
    # What it waited until then is not given back later.
    waits.see([_thread(1, 9.5)])
    assert waits.waited_s == 1.5
