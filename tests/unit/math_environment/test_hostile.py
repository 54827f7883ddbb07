"""Whatever a response does to the library is its verdict; what the machine does is not."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gymmesh_resource.environments.math import library
from gymmesh_resource.environments.math.score import ExpectedAnswerError
from gymmesh_resource.environments.math.verdict import check_expected, judge, warm_up
from gymmesh_resource.workers import (
    AnswerTooMuch,
    ProcessPool,
    WorkerCrashed,
    WorkerTimeout,
    work_on_answer,
)
from tests.unit.math_environment import worker_functions as functions
from tests.unit.math_environment.judging import judging

pytestmark = pytest.mark.long(seconds=80)

# Seconds by the clock that no test waits for, unless something is broken.
PATIENT = 3600.0

# What takes more than the half second of processor time that it is given here.
TOO_MUCH = [
    "9^{9^{9^9}}",
    "9999999999!",
    "((((5!)!)!)!)!",
    "2^{10^{10}}",
    "\\binom{10^9}{10^8}",
    "\\int_0^1 x^{x^{x^x}} dx",
    "(x+y+z+w)^{200}",
    "(" * 2_000 + "1" + ")" * 2_000,
    "\\sqrt{" * 500 + "2" + "}" * 500,
    "1+" * 20_000 + "1",
]
# What the library gives up by itself, or calculates with.
ODD = [
    "10^{400}",
    "10**400",
    "1e400",
    "99999!",
    "9" * 100_000,
    "0/0",
    "1/0",
    "\\log_{1} 5",
    "5 \\mod 0",
    "\\gcd(10^{1000},5)",
    "\ud800",
    "\x00",
    "__import__('os').kill(0, 9)",
]
# What random responses are made of.
PIECES = [
    *[
        r"\boxed{",
        r"}",
        r"{",
        r"\frac",
        r"\sqrt",
        r"^",
        r"_",
        r"!",
        r"%",
        r"\%",
        r"$",
        r"\[",
        r"\]",
        r"(",
        r")",
        r"[",
        r"]",
        r",",
        r"=",
        r"<",
        r"\le",
        r"\text{",
        r"&",
        r"\\",
        r"\pm",
    ],
    *[
        r"\begin{pmatrix}",
        r"\end{pmatrix}",
        r"\int",
        r"\sum_{n=1}^{3}",
        r"\infty",
        r"\fbox{",
        r"x",
        r"y",
        r"1",
        r"2.5",
    ],
    *(" or ", "\x00", "\ud800", "\N{MINUS SIGN}", "\n", "final answer is "),
]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine makes these tests slow, and nothing else."""
    monkeypatch.setattr("gymmesh_resource.workers.answer_work.PATIENCE", PATIENT)


async def test_an_answer_that_takes_too_much_is_worth_nothing() -> None:
    async with judging(0.5) as judges:
        # One after another: none waits for a worker.
        for content in TOO_MUCH:
            response = f"\\boxed{{{content}}}"
            verdict = await judges.compare_as_nemo("5", response)
            assert verdict.reward == 0.0, content[:40]
            assert verdict.failure, content[:40]
            assert verdict.source == "boxed"
            right = await judges.compare("5", response)
            assert (right.reward, right.source) == (0.0, "boxed"), content[:40]
        assert (await judges.compare("5", "\\boxed{5}")).reward == 1.0


@pytest.mark.parametrize("content", ODD, ids=map(str, range(len(ODD))))
def test_an_odd_answer_is_worth_nothing(content: str) -> None:
    for verdict in (judge, library.judge):
        assert verdict("7", f"\\boxed{{{content}}}").reward == 0.0
        assert verdict("7", content).reward == 0.0


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_any_response_has_a_verdict(response: str) -> None:
    assert judge("123456789", response).reward == 0.0
    assert library.judge("123456789", response).reward == 0.0


async def test_an_answer_that_breaks_the_library_is_worth_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warm_up()
    import math_verify

    original = math_verify.verify

    def fragile(gold: object, target: object, **named: object) -> bool:
        if str(target) == "13":
            raise RecursionError
        return original(gold, target, **named)  # type: ignore[no-any-return]

    monkeypatch.setattr(math_verify, "verify", fragile)
    verdict = library.judge("5", "\\boxed{13}")
    assert (verdict.reward, verdict.failure) == (0.0, "it raised RecursionError")
    assert verdict.extracted == "13"
    # An expected answer that breaks it judges nobody.
    with pytest.raises(ExpectedAnswerError, match="RecursionError"):
        library.judge("13", "\\boxed{13}")


def test_sound_expected_answers_equal_themselves() -> None:
    for expected in ("5", "\\frac12", "50\\%", "x=5", "(1,2)", "A", "\\text{Yes}", "x^2+1"):
        check_expected(expected)


async def test_an_expected_answer_that_takes_too_much_is_the_tasks_fault() -> None:
    async with judging(0.5) as judges:
        with pytest.raises(ExpectedAnswerError, match="processor time"):
            await judges.compare_as_nemo("\\int_0^1 x^{x^{x^x}} dx", "\\boxed{5}")
        with pytest.raises(ExpectedAnswerError, match="empty"):
            await judges.compare("", "\\boxed{5}")


async def test_a_worker_killed_from_outside_is_no_verdict(tmp_path: Path) -> None:
    by = signal.SIGKILL  # workers outlive a SIGTERM
    written = tmp_path / "id"
    async with ProcessPool(workers=1) as pool:
        work = work_on_answer(
            pool, functions.write_process_id_and_hang, str(written), cpu_s=PATIENT
        )
        hanging = asyncio.create_task(work)
        while not written.exists():  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.02)
        os.kill(int(written.read_text(encoding="utf-8")), by)
        with pytest.raises(WorkerCrashed) as caught:
            await hanging
        assert caught.value.status == -by


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (functions.spin, "processor time"),
        (functions.hang_with_the_interpreter_lock, "processor time"),
        (functions.use_memory, "memory"),
        (functions.crash, "crashed"),
    ],
)
async def test_what_the_work_does_to_its_worker(function: Callable[[], None], why: str) -> None:
    async with ProcessPool(workers=1, memory_limit=1 << 30) as pool:
        with pytest.raises(AnswerTooMuch, match=why):
            await work_on_answer(pool, function, cpu_s=1.0)
        # The next call has its own time.
        for number in range(3):
            assert await work_on_answer(pool, functions.double, number, cpu_s=1.0) == 2 * number


async def test_the_status_of_a_worker_that_takes_long_to_end_is_waited_for() -> None:
    # As on a busy machine: first its output ends, and seconds later itself.
    async with ProcessPool(workers=1) as pool:
        with pytest.raises(AnswerTooMuch, match="processor time"):
            await work_on_answer(pool, functions.end_its_output_and_then_itself, cpu_s=PATIENT)


async def test_a_worker_that_gets_no_processor_time_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gymmesh_resource.workers.answer_work.PATIENCE", 0.5)
    async with ProcessPool(workers=1) as pool:
        with pytest.raises(WorkerTimeout):
            await work_on_answer(pool, functions.hang, cpu_s=1.0)
