"""Does what a schedule says to the processes of a world of sandboxes."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from aiodocker.exceptions import DockerError

from tests.chaos.processes import kill_all
from tests.chaos.sandboxes.machine import spawners
from tests.chaos.sandboxes.plan import (
    DAEMON,
    FIRST_PROCESS,
    OWNER,
    OWNERS,
    SERVICE,
    SandboxFault,
    SandboxWorld,
)
from tests.chaos.sandboxes.world import SandboxesUp


class Kills:
    """Faults, one after another.

    Attributes:
        done: how often each target was hit.
        missed: how often there was none to hit.
    """

    def __init__(self, up: SandboxesUp, world: SandboxWorld) -> None:
        self.done: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self._up = up
        self._chance = random.Random(f"kills {world.seed}")

    async def follow(self, faults: Iterable[SandboxFault]) -> None:
        """Does them until there is none, or this is cancelled; each once all is up again."""
        for fault in faults:
            await asyncio.sleep(fault.after_s)
            hit = await self.hit(fault.target)
            (self.done if hit else self.missed)[fault.target] += 1

    async def hit(self, target: str) -> bool:
        """Does one; whether there was something to hit."""
        up = self._up
        if target == SERVICE:
            return await up.service.kill()
        if target == OWNER:
            return await up.owners[self._chance.choice(OWNERS)].kill()
        if target == DAEMON:
            return await up.daemon.kill() if up.daemon is not None else kill_all(spawners(up.pid))
        if target == FIRST_PROCESS:
            with suppress(OSError, DockerError):  # the daemon may be down
                pids = await up.machine.first_processes(up.pid)
                return bool(pids) and kill_all([self._chance.choice(pids)])
            return False
        up.wire.cut()
        return True
