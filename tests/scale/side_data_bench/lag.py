"""How late an event loop runs what is due, measured inside it by a ticking task."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from time import monotonic
from typing import Final

_TICK_S: Final = 0.005
_SAVE_S: Final = 0.25
_MOST_MS: Final = 10_000


class LoopLag:
    """A histogram of milliseconds, saved to a file four times a second."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts = [0] * (_MOST_MS + 1)

    async def run(self) -> None:
        """Ticks until it is cancelled."""
        saved = monotonic()
        while True:
            before = monotonic()
            await asyncio.sleep(_TICK_S)
            now = monotonic()
            late = max(0.0, now - before - _TICK_S)
            self._counts[min(int(late * 1000), _MOST_MS)] += 1
            if now - saved >= _SAVE_S:
                saved = now
                text = json.dumps({str(ms): n for ms, n in enumerate(self._counts) if n})
                await asyncio.to_thread(self._save, text)

    def _save(self, text: str) -> None:
        """Whole or not at all: the process may be killed meanwhile."""
        fresh = self._path.with_suffix(".fresh")
        fresh.write_text(text)
        fresh.replace(self._path)


def percentile(path: Path, share: float) -> float:
    """Milliseconds that so many of the ticks were late at most, rounded up."""
    counts = {int(ms): n for ms, n in json.loads(path.read_text()).items()}
    left = share * sum(counts.values())
    for ms in sorted(counts):
        left -= counts[ms]
        if left <= 0:
            return ms + 1.0
    return float(_MOST_MS)
