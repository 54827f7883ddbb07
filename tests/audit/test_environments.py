"""All ready environments pass their own audit, but for what they mean with a reason.

`make test` plays the cheap part; `make audit` (GYMMESH_TEST_AUDIT=1) plays all of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_audit import AuditOptions, Gold, Report, lines
from gymmesh_mesh.authoring.auditing import audit_here
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.environments.reasoning_gym.scoring import dataset_names
from gymmesh_resource.registry import environment_names
from gymmesh_responses import loads
from tests.unit.environments.harbor.made_tasks import RUNNABLE, stepped_task, write_tasks
from tests.unit.environments.nemo_gym.nemo_server import Counter, serving

WHOLE = bool(os.environ.get("GYMMESH_TEST_AUDIT"))
# The attacks that stall are judged to their limits, which takes a busy machine many minutes.
pytestmark = [pytest.mark.long(seconds=120), pytest.mark.timeout(3_600 if WHOLE else 600)]
# Programs that stall are judged to their limits: shorter ones show the same.
LIMITS: Mapping[str, Mapping[str, Any]] = {"code": {"test_timeout_s": 2.0, "suite_timeout_s": 8.0}}
# Whose verdicts are programs: each constant answer is tried on one of their tasks alone.
DEALT = ("code", "harbor", "workspace")
# Their tasks and verdicts are another side's.
ELSEWHERE = {"harbor", "inspect", "mcp", "nemo_gym", "openenv", "ors", "verifiers"}
HARBOR_TASKS = ("json-first", "older")
HARBOR_OPTIONS: Mapping[str, Any] = {"images": {"*": "host"}, "network": "agent"}
# In how many parts reasoning-gym's datasets are tried; `make test` tries the first.
PARTS = 12
TASKS_PER_DATASET = 2


async def audited(
    name: str,
    options: Mapping[str, Any],
    known: Callable[[rollout_pb2.Task], Sequence[Gold]] | None = None,
) -> Report:
    config = EnvironmentConfig(use=name, options=dict(options), verify_timeout_s=120.0)
    wanted = AuditOptions(cheap=not WHOLE, deal=not WHOLE and name in DEALT, tasks=30)
    return await audit_here(name, config, None, wanted, known=known)


def check(report: Report) -> None:
    assert report.passed, "\n".join(lines(report))
    assert report.measured.verdicts > 0


@pytest.mark.parametrize("name", sorted(set(environment_names()) - ELSEWHERE))
async def test_an_environment_passes_its_audit(name: str) -> None:
    check(await audited(name, LIMITS.get(name, {})))


@pytest.mark.parametrize("part", range(PARTS if WHOLE else 1))
async def test_every_dataset_of_reasoning_gym_passes_its_audit(part: int) -> None:
    datasets = sorted(dataset_names())[part::PARTS]
    count = TASKS_PER_DATASET * len(datasets)
    report = await audited("reasoning_gym", {"datasets": datasets, "count": count})
    check(report)
    assert report.tasks == count


async def test_mcp_passes_its_audit() -> None:
    server = Path(__file__).parents[1] / "unit/environments/mcp/tool_server.py"
    tools = {"command": [sys.executable, str(server), "stdio"], "tools": ["reverse"], "quiet": True}
    servers = {"tools": tools}
    for verdict in ("exact", "contains"):
        check(await audited("mcp", {"servers": servers, "verdict": verdict, "shared": True}))


async def test_harbor_passes_its_audit(tmp_path: Path) -> None:
    """The solutions of task folders win, and nothing else does."""
    tasks = {name: RUNNABLE[name] for name in HARBOR_TASKS}
    folder = write_tasks(tmp_path, {**tasks, "steps": stepped_task({"one": "", "two": ""})})
    report = await audited("harbor", {**HARBOR_OPTIONS, "tasks": str(folder)})
    check(report)
    assert report.golds == report.tasks == len(HARBOR_TASKS) + 1


async def test_nemo_gym_passes_its_audit() -> None:
    async with serving(Counter().app) as url:
        report = await audited("nemo_gym", {"url": url}, _counted)
        check(report)
        assert report.golds == report.tasks


def _counted(task: rollout_pb2.Task) -> list[Gold]:
    """What the bridged server wants to be called: its rows say how far the counter is to go."""
    row = loads(task.payload_json)
    calls = [("increment_counter", {"count": row["expected_count"] - row["initial_count"]})]
    return [Gold("", "calls", calls=calls)]
