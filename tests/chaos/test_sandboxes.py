"""A few sandboxes whose service, owners and processes are killed; the long runs are
`make chaos-sandboxes`.
"""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

from tests.chaos.sandboxes.plan import (
    DAEMON,
    FIRST_PROCESS,
    OWNER,
    SERVICE,
    TARGETS,
    WIRE,
    SandboxFault,
    SandboxWorld,
    sandbox_faults,
    sandbox_lives,
    sandbox_world,
)
from tests.chaos.sandboxes.seed import run_sandbox_seed
from tests.support.optional import require


async def test_nothing_is_left_whatever_is_killed(tmp_path: Path) -> None:
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    world = SandboxWorld(seed=99, backend="bubblewrap", sandboxes=30, at_a_time=6, ttl_s=2)
    order = (FIRST_PROCESS, WIRE, OWNER, SERVICE, DAEMON, WIRE)
    faults = [SandboxFault(0.4, target) for target in order]
    result = await run_sandbox_seed(world, tmp_path, faults)
    assert result.violations == []
    assert result.faults.total() == len(order), result.missed
    assert result.sandboxes >= world.sandboxes


def test_a_seed_always_means_the_same() -> None:
    for seed in range(8):
        world = sandbox_world(seed, 250, "bubblewrap")
        assert world == sandbox_world(seed, 250, "bubblewrap")
        faults = list(islice(sandbox_faults(world), 10))
        assert faults == list(islice(sandbox_faults(world), 10))
        assert {one.target for one in faults[:5]} == set(TARGETS)
        lives = list(islice(sandbox_lives(world), 100))
        assert lives == list(islice(sandbox_lives(world), 100))
        assert {life.owner for life in lives} == {"bench0", "bench1", ""}
        assert any(life.forks for life in lives)
