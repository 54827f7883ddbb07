"""How the bench talks to a contender: JSON lines. Standard library only, for any Python from 3.11.

A contender says ``{"ready": …}``, with the `version` of what it runs, and `apart` where its own
process only drives the work and does not count. Then it answers each ``{"rollouts": N, "in_flight":
C}`` on standard input once all N are done: `wall_s`, and, in milliseconds, the longest time that
its event loop was late for a timer: as it was (`late_ms`), and less what its thread waited for a
processor meanwhile (`block_ms`), which is how long the loop itself held things up.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

TICK_S: Final = 0.02


def take_stdout() -> Callable[[dict[str, Any]], None]:
    """Keeps standard output for the bench, and sends what libraries print to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    return say


async def answer(
    say: Callable[[dict[str, Any]], None],
    ready: dict[str, Any],
    run: Callable[[int, int], Awaitable[None]],
) -> None:
    """Says `ready`, then calls `run(rollouts, in_flight)` for each line of standard input."""
    say({"ready": ready})
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        watch = Watch()
        started = time.perf_counter()
        try:
            await run(asked["rollouts"], asked["in_flight"])
        finally:
            watch.stop()
        wall_s = time.perf_counter() - started
        say({"wall_s": wall_s, "block_ms": watch.block_ms, "late_ms": watch.late_ms})


class Watch:
    """How long the running event loop is blocked at most, until `stop`."""

    def __init__(self) -> None:
        self.block_ms = self.late_ms = 0.0
        self._at_s, self._waited_s = time.perf_counter(), _waited_s()
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def stop(self) -> None:
        """Watches no more."""
        self._timer.cancel()

    def _tick(self) -> None:
        at_s, waited_s = time.perf_counter(), _waited_s()
        late_s = at_s - self._at_s - TICK_S
        self.late_ms = max(self.late_ms, late_s * 1e3)
        self.block_ms = max(self.block_ms, (late_s - (waited_s - self._waited_s)) * 1e3)
        self._at_s, self._waited_s = at_s, waited_s
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)


def _waited_s() -> float:
    """How long this thread has waited for a processor so far; 0 where the system does not say."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except OSError:
        return 0.0


async def spread(rollouts: int, in_flight: int, one: Callable[[], Awaitable[None]]) -> None:
    """Calls `one` so often, with so many running at a time."""
    left = iter(range(rollouts))

    async def worker() -> None:
        for _ in left:
            await one()

    await asyncio.gather(*(worker() for _ in range(min(rollouts, in_flight))))
