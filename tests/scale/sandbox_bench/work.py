"""What each contender does when the bench asks. Standard library only, for any Python from 3.11.

A contender says ``{"ready": …}``, then answers each line of its standard input, which is like
``{"do": NAME, "count": N, "at_a_time": K}``:

    starts  makes N sandboxes, runs the program once in each, and ends each
    hold    keeps N sandboxes open from now on
    runs    runs the program N times, in the sandboxes that are open, in turn

The answers of `starts` and `runs` have `wall_s`, and `ms`, one figure for each: from the call that
makes a sandbox, or starts the program, to the program's end.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from tests.scale.rollout_bench import talk

#: The program that all run: it does nothing.
PROGRAM: Final = "/bin/true"


class Sandboxes(Protocol):
    """The sandboxes of one contender."""

    async def make(self) -> Any:
        """A new one."""

    async def run(self, sandbox: Any) -> None:
        """Runs the program in one to its end. Raises RuntimeError where it did not end well."""

    async def end(self, sandbox: Any) -> None:
        """Ends one; nothing is left of it."""


async def answer(
    say: Callable[[dict[str, Any]], None], ready: dict[str, Any], sandboxes: Sandboxes
) -> None:
    """Says `ready`, then does what each line of standard input asks, until its end."""
    work = _Work(sandboxes)
    say({"ready": ready})
    try:
        while line := await asyncio.to_thread(sys.stdin.readline):
            asked = json.loads(line)
            say(await work.do(**asked))
    finally:
        await work.hold(0)


class _Work:
    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes
        self._open: list[Any] = []

    async def do(self, do: str, count: int, at_a_time: int = 1) -> dict[str, Any]:
        if do == "hold":
            await self.hold(count)
            return {}
        turns = itertools.cycle(self._open)

        async def one() -> float:
            return await (self._start() if do == "starts" else self._run(next(turns)))

        return await _timed(count, at_a_time, one)

    async def hold(self, count: int) -> None:
        while len(self._open) < count:
            self._open.append(await self._sandboxes.make())
        while len(self._open) > count:
            await self._sandboxes.end(self._open.pop())

    async def _start(self) -> float:
        began = time.perf_counter()
        sandbox = await self._sandboxes.make()
        try:
            await self._sandboxes.run(sandbox)
            return time.perf_counter() - began
        finally:
            await self._sandboxes.end(sandbox)

    async def _run(self, sandbox: Any) -> float:
        began = time.perf_counter()
        await self._sandboxes.run(sandbox)
        return time.perf_counter() - began


async def _timed(count: int, at_a_time: int, one: Callable[[], Awaitable[float]]) -> dict[str, Any]:
    taken: list[float] = []

    async def timed() -> None:
        taken.append(await one())

    began = time.perf_counter()
    await talk.spread(count, at_a_time, timed)
    return {"wall_s": time.perf_counter() - began, "ms": [seconds * 1e3 for seconds in taken]}
