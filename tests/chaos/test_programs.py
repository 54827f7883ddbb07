"""Programs that are killed with all that they need; the long runs are `make chaos-programs`."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

from tests.chaos.programs.plan import TARGETS, ProgramFault, ProgramWorld, program_faults
from tests.chaos.programs.seed import run_program_seed
from tests.support.optional import require


async def test_one_outcome_each_whatever_is_killed(tmp_path: Path) -> None:
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    # The model's calls are the clock: each kill comes a few calls after all was up again.
    faults = [ProgramFault(3, target) for target in TARGETS]
    world = ProgramWorld(seed=99, rollouts=12, concurrency=4)
    result = await run_program_seed(world, tmp_path, faults)
    assert result.violations == []
    assert result.completed + result.failed == world.rollouts
    assert result.faults.total() + result.missed.total() == len(faults)
    assert result.faults.total() >= len(faults) - 1, result.missed


def test_a_seed_always_means_the_same() -> None:
    for seed in range(8):
        world = ProgramWorld(seed, 100)
        faults = list(islice(program_faults(world), 10))
        assert faults == list(islice(program_faults(world), 10))
        assert {one.target for one in faults[:5]} == set(TARGETS)
