"""Each of three bugs planted in the collector is found by the judge, for what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.plan import COLLECTOR, ENDPOINT, Fault
from tests.chaos.seed import run_seed
from tests.chaos.test_quick import WITHIN_S, shown, small

CUT = [Fault(1.6, "power cut", COLLECTOR)]
KILL = [Fault(1.2, "kill", COLLECTOR)]
STORM = [Fault(0.2, "500", ENDPOINT, 6.0, 1.0)]


@pytest.mark.parametrize(
    ("plant", "schedule", "attempts", "found"),
    [
        ("early-ack", CUT, 6, "was acknowledged, but is not on disk"),
        ("zero", STORM, 1, "the answer of the completed rollout is"),
        ("twice", KILL, 6, "has 2 outcomes"),
    ],
)
async def test_a_planted_bug_is_found(
    plant: str, schedule: list[Fault], attempts: int, found: str, tmp_path: Path
) -> None:
    world = small(tasks=12, slowest_s=0.6, attempts=attempts)
    result = await run_seed(world, schedule, tmp_path, within_s=WITHIN_S, plant=plant)
    assert any(found in one for one in result.violations), shown(result)
