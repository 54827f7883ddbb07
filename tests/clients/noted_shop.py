"""A shop whose sessions are noted by process and can be held until a test has seen enough.

Each session adds its task's id, as a line of one length, to `sessions-PID` in the folder, so that
the sessions of a process can be counted by the file's size. Files of these names hold sessions:

    waves   sessions go on in waves of WAVE: the last to come frees its wave. So each wave is the
            WAVE calls that a collector had under way at one time, whatever takes how long; until
            both processes were seen, a wave waits for the other for a moment.
    frozen  sessions wait until the file is gone; each adds its line to `frozen-PID`.

A session that is held for too long fails, so that nothing waits for ever.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gymmesh_resource import Environment, Rollout, Session, Task, tool

WAVE: Final = 16
ID: Final = "shop-{:04d}"
LINE: Final = len(ID.format(0)) + 1
PROCESSES: Final = 2
_HELD_S: Final = 90.0
_FOR_THE_OTHER_S: Final = 1.0
_LOOK_S: Final = 0.02


def counts(folder: Path, kind: str = "sessions") -> dict[int, int]:
    """How many sessions began, or were frozen, in each process."""
    return {
        int(path.name.partition("-")[2]): path.stat().st_size // LINE
        for path in folder.glob(f"{kind}-*")
    }


class NotedShop(Environment[Counter[str]]):
    """A shop whose basket must end up as the task asks, with notes in a folder."""

    state = Counter

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    @tool
    def add(self, session: Session[Counter[str]], item: str, count: int = 1) -> str:
        """Put some of an item into the basket."""
        session.state[item] += count
        return f"{session.state[item]} x {item}"

    def verify(self, session: Session[Counter[str]], rollout: Rollout) -> float:
        return float(session.state == Counter(rollout.task.payload["wanted"]))

    async def create_state(self, task: Task, seed: int) -> Counter[str]:
        number = self._note("sessions", task.id)
        if (self._folder / "waves").exists():
            await self._join_wave(number)
        if (self._folder / "frozen").exists():
            self._note("frozen", task.id)
            await self._until(lambda: not (self._folder / "frozen").exists())
        return Counter()

    def _note(self, kind: str, task_id: str) -> int:
        """Adds a line; returns how many there are in all processes."""
        with (self._folder / f"{kind}-{os.getpid()}").open("a") as file:
            file.write(f"{task_id}\n")
        return sum(counts(self._folder, kind).values())

    async def _join_wave(self, number: int) -> None:
        whole = -(-number // WAVE) * WAVE
        moment = time.monotonic() + _FOR_THE_OTHER_S

        def is_free() -> bool:
            begun = counts(self._folder)
            both = len(begun) == PROCESSES or time.monotonic() > moment
            return both and sum(begun.values()) >= whole

        await self._until(is_free)

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(_HELD_S):
            while not holds():  # noqa: ASYNC110  # what other processes do has no event here
                await asyncio.sleep(_LOOK_S)
