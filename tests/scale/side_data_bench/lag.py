"""How late an event loop runs what is due, measured inside it by a ticking task."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from time import monotonic, thread_time
from typing import Final

_TICK_S: Final = 0.005
_SAVE_S: Final = 0.25
_MOST_MS: Final = 10_000


class LoopLag:
    """Two histograms of milliseconds, saved to a file four times a second: how late a tick was, and
    how much CPU time the loop's thread used between two. The first has what other programs do to
    the machine in it, the second has not: a loop that its own work blocks is busy meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._late = [0] * (_MOST_MS + 1)
        self._busy = [0] * (_MOST_MS + 1)

    async def run(self) -> None:
        """Ticks until it is cancelled."""
        saved = monotonic()
        while True:
            before, used = monotonic(), thread_time()
            await asyncio.sleep(_TICK_S)
            now = monotonic()
            _count(self._late, now - before - _TICK_S)
            _count(self._busy, thread_time() - used)
            if now - saved >= _SAVE_S:
                saved = now
                found = {"late": _sparse(self._late), "busy": _sparse(self._busy)}
                await asyncio.to_thread(self._save, json.dumps(found))

    def _save(self, text: str) -> None:
        """Whole or not at all: the process may be killed meanwhile."""
        fresh = self._path.with_suffix(".fresh")
        fresh.write_text(text)
        fresh.replace(self._path)


def percentile(path: Path, share: float, of: str = "late") -> float:
    """Milliseconds that so many of the ticks were `late`, or the thread `busy`, at most; rounded
    up.
    """
    counts = {int(ms): n for ms, n in json.loads(path.read_text())[of].items()}
    left = share * sum(counts.values())
    for ms in sorted(counts):
        left -= counts[ms]
        if left <= 0:
            return ms + 1.0
    return float(_MOST_MS)


def _count(counts: list[int], seconds: float) -> None:
    counts[min(int(max(0.0, seconds) * 1000), _MOST_MS)] += 1


def _sparse(counts: list[int]) -> dict[str, int]:
    return {str(ms): count for ms, count in enumerate(counts) if count}
