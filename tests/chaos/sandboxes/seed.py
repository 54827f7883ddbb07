"""One seed: sandboxes are used while their service, owners and processes are killed.

Then all is left to time: first the owners are killed while they have sandboxes, and nothing may be
left once the leases have run out; then the service is, and nothing may be left once it is back. No
lease that was ever given out may do anything in the end, and none may be in a log.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.timers import cancel_and_wait
from tests.chaos.processes import KILL, START_S
from tests.chaos.sandboxes.kills import Kills
from tests.chaos.sandboxes.lives import Lives
from tests.chaos.sandboxes.machine import descriptors
from tests.chaos.sandboxes.plan import (
    OWNERS,
    SandboxFault,
    SandboxLife,
    SandboxWorld,
    sandbox_faults,
    sandbox_lives,
)
from tests.chaos.sandboxes.world import SandboxesUp, sandboxes_up

#: Beyond the time of the leases, on a busy machine.
_BUSY_S: Final = 300.0
#: After the service is back: what was killed with it may be ending yet.
_ENDING_S: Final = 120.0
#: Descriptors that a service may have in addition to those of a fresh one: of connections.
_MORE_DESCRIPTORS: Final = 24
_ORPHANS: Final = 2  # of each owner
_T = TypeVar("_T")


@dataclass
class SandboxResult:
    """What came of a seed.

    Attributes:
        lives, whole: how many were begun, and did all that they were to do.
        sandboxes: that the service was seen to have.
        failures: reasons of calls that failed, and how often.
        faults, missed: what was done, and what could not be done.
        expired_s: from the owners' end to that of their sandboxes.
        violations: what was wrong.
    """

    world: SandboxWorld
    lives: int = 0
    whole: int = 0
    sandboxes: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    expired_s: float = 0.0
    wall_s: float = 0.0
    violations: list[str] = field(default_factory=list)


async def run_sandbox_seed(
    world: SandboxWorld, path: Path, faults: Iterable[SandboxFault] | None = None
) -> SandboxResult:
    """Carries a seed out in a folder; `faults`: in place of the seed's own."""
    begun = time.monotonic()
    path.mkdir(parents=True, exist_ok=True)
    result = SandboxResult(world)
    async with sandboxes_up(world, path) as up:
        lives, kills = Lives(up, world), Kills(up, world)
        schedule = sandbox_faults(world) if faults is None else faults
        beside = [
            asyncio.create_task(lives.watch()),
            asyncio.create_task(_kill(lives, kills, schedule)),
        ]
        try:
            async with asyncio.timeout(world.seconds):
                await lives.run(sandbox_lives(world))
                if faults is not None:
                    await beside[1]  # those that were asked for, however fast the lives were
        except TimeoutError:
            lives.violations.append(
                f"the uses of sandboxes were not finished after {world.seconds:.0f} s"
            )
        finally:
            await cancel_and_wait(*beside)
        for task in beside:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        result.expired_s = await _owners_die(up, world, lives)
        before = descriptors(up.pid)
        await _service_dies(up, world, lives)
        if (after := descriptors(up.pid)) + _MORE_DESCRIPTORS < before:
            lives.violations.append(
                f"the sandbox service had {before} open files, a restarted service has {after}"
            )
        for sandbox_id in await lives.leases_that_live():
            lives.violations.append(f"a lease of the ended sandbox {sandbox_id} is still valid")
    lives.violations += _leases_in_logs(lives, path)
    result.lives, result.whole, result.sandboxes = lives.begun, lives.whole, len(lives.seen)
    result.failures, result.violations = lives.failures, lives.violations
    result.faults, result.missed = kills.done, kills.missed
    result.wall_s = time.monotonic() - begun
    return result


async def _kill(lives: Lives, kills: Kills, faults: Iterable[SandboxFault]) -> None:
    await lives.first.wait()
    await kills.follow(faults)


async def _owners_die(up: SandboxesUp, world: SandboxWorld, lives: Lives) -> float:
    """Kills the owners while they have sandboxes; seconds until nothing is left of these."""
    await _orphans(up, world, lives, first=1_000_000)
    for owner in up.owners.values():
        owner.signal(KILL)
    begun = time.monotonic()
    left = await up.machine.until_nothing(lambda: up.pid, world.ttl_s + _BUSY_S)
    lives.violations += [f"left over after the owners were killed: {one}" for one in left]
    lives.violations += [
        f"listed, although its owner was killed: the sandbox {one.sandbox.sandbox_id}"
        for one in await lives.listed()
    ]
    return time.monotonic() - begun


async def _service_dies(up: SandboxesUp, world: SandboxWorld, lives: Lives) -> None:
    """Kills the service while there are sandboxes; nothing is left of them once it is back."""
    await _orphans(up, world, lives, first=2_000_000)
    await up.service.kill()
    left = await up.machine.until_nothing(lambda: up.pid, _ENDING_S)
    lives.violations += [f"left over after the service was killed: {one}" for one in left]


async def _orphans(up: SandboxesUp, world: SandboxWorld, lives: Lives, *, first: int) -> None:
    """Makes sandboxes that have no other end than that of their owners, once all are up."""
    for number, owner in enumerate((*OWNERS, "") * _ORPHANS):

        async def make(at: int = first + 100 * number, owner: str = owner) -> None:
            # Another life each time: what a call made that failed may be there.
            life = SandboxLife(at + lives.begun, owner, 0, 0, abandoned=True, pause_s=0.0)
            lives.begun += 1
            await lives.orphan(life)

        await _patiently(make)
    if not up.machine.running():
        lives.violations.append("no program runs in the sandboxes that were just created")


async def _patiently(call: Callable[[], Awaitable[_T]]) -> _T:
    """What a call gives once all that it needs is up again."""
    until = time.monotonic() + START_S
    while True:
        try:
            return await call()
        except MeshError:
            if time.monotonic() > until:
                raise
        await asyncio.sleep(0.2)


def _leases_in_logs(lives: Lives, path: Path) -> list[str]:
    found = []
    for log in path.glob("*.log"):
        text = log.read_bytes()
        for sandbox_id, lease in lives.leases:
            if any(form in text for form in (lease, lease.hex().encode(), base64.b64encode(lease))):
                found.append(f"{log.name} contains a lease of the sandbox {sandbox_id}")
    return found
