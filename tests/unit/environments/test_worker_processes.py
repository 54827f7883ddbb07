"""What the machine does to a worker process is no verdict on the answer that it works on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.environment import Environment
from gymmesh_resource.environments.instruction_following import InstructionFollowingEnvironment
from gymmesh_resource.environments.mcqa import McqaEnvironment
from gymmesh_resource.environments.sql import SqlEnvironment
from gymmesh_resource.environments.structured_outputs import StructuredOutputsEnvironment
from gymmesh_responses import new_message
from gymmesh_runtime.errors import MeshError
from tests.unit.resource.served import Served, served, task

_PATIENT_S = 300.0
_ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Case:
    """An environment with one worker, made with seconds for an answer; a row, an answer that is
    right, and one that takes more time than there is.
    """

    make: Callable[[float], Environment[Any]]
    row: dict[str, Any]
    right: str
    endless: str


def _one_worker(environment: Environment[Any]) -> Environment[Any]:
    environment.processes = 1
    return environment


CASES = {
    "mcqa": Case(
        lambda seconds: McqaEnvironment(pattern_timeout_s=seconds),
        {"options": [{"A": "x"}, {"B": "y"}], "expected_answer": "B",
         "template_metadata": {"output_regex": ["(a+)+$", "it is (.)"]}},
        "it is B",
        "a" * 60 + "b",
    ),
    "structured_outputs": Case(
        lambda seconds: StructuredOutputsEnvironment(judge_workers=1, judge_timeout_s=seconds),
        {"schema_str": '{"type": "string", "pattern": "^(a+)+$"}'},
        '"aaa"',
        json.dumps("a" * 60 + "b"),
    ),
    "instruction_following": Case(
        lambda seconds: InstructionFollowingEnvironment(check_timeout_s=seconds),
        {"instruction_id_list": ["keywords:palindrome", "count:count_unique"], "kwargs": [{}, {}]},
        " ".join(f"word{number}" for number in range(1_000)) + " level",
        ". " * 2_000_000 + "level",
    ),
    "sql": Case(
        lambda seconds: SqlEnvironment(workers=1, verdict_timeout_s=seconds),
        {"gold_sql": "SELECT x FROM t",
         "setup_sql": "CREATE TABLE t (x); INSERT INTO t VALUES (1)"},
        "SELECT 1",
        _ENDLESS,
    ),
}  # fmt: skip


@pytest.fixture(name="case", params=CASES)
def _case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


async def test_a_worker_that_is_killed_from_outside_is_a_failure(case: Case) -> None:
    async with served(_one_worker(case.make(60.0)), verify_timeout_s=_PATIENT_S) as mesh:
        assert await _reward(mesh, case, case.right) == 1.0
        (worker,) = _workers()
        idle = _processor_s(worker)
        judging = asyncio.create_task(_reward(mesh, case, case.endless))
        while _processor_s(worker) < idle + 0.3:  # noqa: ASYNC110  # the kernel counts it
            await asyncio.sleep(0.02)
        os.kill(worker, signal.SIGKILL)

        with pytest.raises(MeshError) as caught:
            await judging

        assert caught.value.reason_name == "VERIFIER_FAULT"
        assert await _reward(mesh, case, case.right) == 1.0


async def test_a_worker_that_gets_no_processor_for_long_still_judges(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymmesh_resource.environments.sql.environment._GRACE", 0.5)
    # A worker's first judgement may load libraries, which takes half a second of processor.
    async with served(_one_worker(case.make(2.0)), verify_timeout_s=_PATIENT_S) as mesh:
        assert await _reward(mesh, case, case.right) == 1.0
        (worker,) = _workers()
        os.kill(worker, signal.SIGSTOP)
        judging = asyncio.create_task(_reward(mesh, case, case.right))
        await asyncio.sleep(4.0)
        os.kill(worker, signal.SIGCONT)

        assert await judging == 1.0


async def _reward(mesh: Served, case: Case, answer: str) -> float:
    transcript = [new_message("assistant", answer)]
    verification = await mesh.verify(of=task(**case.row), transcript=transcript)
    assert verification.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
    return verification.reward


def _workers() -> list[int]:
    """The worker processes of this one."""
    children = [
        int(pid)
        for thread in Path("/proc/self/task").iterdir()
        for pid in (thread / "children").read_text().split()
    ]
    return [
        pid for pid in children if b"process_worker.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def _processor_s(pid: int) -> float:
    """Seconds of processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
