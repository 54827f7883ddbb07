"""Kills what a schedule says in a world of programs."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tests.chaos.processes import KILL
from tests.chaos.programs.plan import PROGRAM, ProgramFault, ProgramWorld
from tests.chaos.programs.world import ProgramsUp
from tests.chaos.sandboxes.using import MARK

_LOOK_S = 0.01


class ProgramKills:
    """Faults, one after another.

    Attributes:
        done: how often each target was hit.
        missed: how often there was none to hit.
    """

    def __init__(self, up: ProgramsUp, world: ProgramWorld) -> None:
        self.done: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self._up = up
        self._chance = random.Random(f"kills of programs {world.seed}")

    async def follow(self, faults: Iterable[ProgramFault]) -> None:
        """Does them until there is none, or this is cancelled; each once all is up again."""
        for fault in faults:
            until = self._up.calls + fault.after_calls
            while self._up.calls < until:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(_LOOK_S)
            hit = await self._hit(fault.target)
            (self.done if hit else self.missed)[fault.target] += 1

    async def _hit(self, target: str) -> bool:
        if target != PROGRAM:
            return await self._up.services[target].kill()
        found = programs(self._up.mark)
        if not found:
            return False
        with suppress(ProcessLookupError):
            os.kill(self._chance.choice(found), KILL)
            return True
        return False


def programs(mark: str) -> list[int]:
    """The process ids of the programs that run in sandboxes, without those that they start."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            ours = f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0")
            if ours and (folder / "cmdline").read_bytes().startswith(b"python3\0-c\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found
