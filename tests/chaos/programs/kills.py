"""Kills what a schedule says in a world of programs."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable

from tests.chaos.processes import kill_all
from tests.chaos.programs.plan import PROGRAM, ProgramFault, ProgramWorld
from tests.chaos.programs.world import ProgramsUp

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
        # Without the processes that they start.
        running = self._up.machine.programs().items()
        found = [pid for pid, words in running if words.startswith("python3 -c ")]
        return bool(found) and kill_all([self._chance.choice(found)])
