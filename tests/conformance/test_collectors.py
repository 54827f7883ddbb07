"""The suite for collectors: `gym-cli collect` passes it, and collectors with a defect do not."""

from __future__ import annotations

import asyncio
import sys

import pytest

from gymmesh_conformance.collectors import (
    Collector,
    CollectorCase,
    load_collector_cases,
    run_collector_case,
    select_collector_cases,
)
from gymmesh_conformance.runner import CaseResult

pytestmark = pytest.mark.long(seconds=130)

_PLACES = "{agent} {input} {output} {failures}"
_COLLECT = f"{sys.executable} -m gymmesh_cli collect --agent {{agent}} -i {{input}} -o {{output}}"
_TAMPERING = f"{sys.executable} -m tests.conformance.tampering_collector"


@pytest.mark.parametrize("case", load_collector_cases(), ids=lambda case: case.name)
async def test_gym_cli_collects(case: CollectorCase) -> None:
    result = await run_collector_case(case, Collector(_COLLECT, timeout_s=120))
    assert result.outcome == "passed", "\n".join((result.rule, *result.problems))


@pytest.mark.parametrize(
    ("defect", "case", "seen"),
    [
        ("twice", "writes_a_row_for_each_rollout", "expected one, got 2"),
        ("lossy", "writes_a_row_for_each_rollout", "expected one, got 0"),
        ("zero_for_none", "not_judged_is_not_zero", "expected to be absent"),
        ("zero_for_failed", "does_not_try_again_what_is_not_safe", "what is not data"),
        ("zero_for_failed", "fails_on_what_it_may_not_ignore", "what is not data"),
        ("zero_for_failed", "a_gap_is_not_data", "what is not data"),
        ("always_one", "a_verdict_of_zero_is_a_reward", "expected 0.0, got 1.0"),
        ("no_retries", "starts_anew_what_a_lost_stream_had", "expected one, got 0"),
    ],
)
async def test_a_collector_with_a_defect_fails(defect: str, case: str, seen: str) -> None:
    command = f"{_TAMPERING} {defect} {_PLACES}"
    result = await run_collector_case(
        select_collector_cases([case])[0], Collector(command, timeout_s=120)
    )
    assert any(seen in problem for problem in result.problems), result.problems


async def _by_hand(case: str, *, timeout_s: float, collects: bool) -> tuple[CaseResult, str]:
    """The result of a case whose collector is started by this test, and what was announced."""
    said: asyncio.Queue[str] = asyncio.Queue()
    collector = Collector(timeout_s=timeout_s, announce=said.put_nowait)
    running = asyncio.create_task(run_collector_case(select_collector_cases([case])[0], collector))
    text = await asyncio.wait_for(said.get(), 60)
    if collects:
        agent, tasks, rows, _ = (line.split()[-1] for line in text.splitlines()[1:])
        words = _COLLECT.format(agent=agent, input=tasks, output=rows).split()
        process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.DEVNULL)
        await asyncio.wait_for(process.wait(), 120)
    return await running, text


async def test_a_collector_that_somebody_else_starts() -> None:
    case = "does_not_try_again_what_is_not_safe"
    result, text = await _by_hand(case, timeout_s=150, collects=True)
    assert result.outcome == "passed", result.problems
    assert text.startswith(f"collector/{case}: within 150 s, collect from the agent at")


async def test_a_collector_that_nobody_starts() -> None:
    result, _ = await _by_hand("not_judged_is_not_zero", timeout_s=0.5, collects=False)
    assert result.outcome == "failed"
    assert "no collector came to 127.0.0.1:" in result.problems[0]


@pytest.mark.parametrize(
    ("command", "seen"),
    [
        ("/no/such/program {agent}", "cannot be started"),
        (f"{sys.executable} -c 'import sys; sys.exit(7)'", "exit code 7"),
        (f"{sys.executable} -c 'import time; time.sleep(60)'", "did not end within 1 s"),
        (f"{sys.executable} -c 0", "expected one, got 0"),
    ],
)
async def test_what_is_no_collector_fails(command: str, seen: str) -> None:
    case = select_collector_cases(["not_judged_is_not_zero"])[0]
    timeout_s = 1 if "sleep" in command else 120
    result = await run_collector_case(case, Collector(command, timeout_s=timeout_s))
    assert any(seen in problem for problem in result.problems), result.problems
