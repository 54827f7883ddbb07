"""The peer process that the sessions of an environment share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymmesh_resource.peer_processes.errors import PeerLost
from gymmesh_resource.peer_processes.peer_process import PeerProcess
from gymmesh_runtime.timers import cancel_and_wait


class SharedPeer:
    """One process at a time, made by `make`; another one once it is lost.

    `opening`: a method of the script, called once in each process before any other, with
    `params`; what it answers is kept. `opening_s`: seconds that it may take.
    """

    def __init__(
        self,
        make: Callable[[], PeerProcess],
        opening: str,
        params: Mapping[str, Any],
        opening_s: float,
    ) -> None:
        self._make = make
        self._opening, self._params, self._opening_s = opening, params, opening_s
        # What it gives: the process, and what the opening method answered.
        self._start: asyncio.Task[tuple[PeerProcess, Any]] | None = None

    async def process(self) -> PeerProcess:
        """The process, started where there is none. Raises `PeerFault`."""
        return (await self._ready())[0]

    async def opened(self) -> Any:
        """What the opening method answered, of the process that runs. Raises `PeerFault`."""
        return (await self._ready())[1]

    async def call(
        self,
        method: str,
        params: Mapping[str, Any],
        timeout_s: float,
        secrets: Sequence[str] = (),
    ) -> Any:
        """See `PeerProcess.call`; starts a process where there is none."""
        return await (await self.process()).call(method, params, timeout_s, secrets)

    async def close(self) -> None:
        """End the process; harmless when called twice."""
        start, self._start = self._start, None
        if start is not None:
            await _ended(start)

    async def _ready(self) -> tuple[PeerProcess, Any]:
        last = self._start
        if last is None or _is_over(last):
            # No caller's own: one that is cancelled does not end what the others wait for.
            self._start = asyncio.get_running_loop().create_task(self._started(last))
        start = self._start
        assert start is not None, "just made"
        try:
            return await asyncio.shield(start)
        except asyncio.CancelledError:
            if start.cancelled() and self._start is not start:
                raise PeerLost("the process was closed while it started") from None
            raise

    async def _started(
        self, last: asyncio.Task[tuple[PeerProcess, Any]] | None
    ) -> tuple[PeerProcess, Any]:
        if last is not None:
            await _ended(last)
        process = self._make()
        try:
            await process.open()
            opened = await process.call(self._opening, self._params, self._opening_s)
        except BaseException:
            await asyncio.shield(process.close())
            raise
        return process, opened


def _is_over(start: asyncio.Task[tuple[PeerProcess, Any]]) -> bool:
    """Whether it failed, or the process that it gave is lost."""
    if not start.done():
        return False
    failed = start.cancelled() or start.exception() is not None
    return failed or start.result()[0].lost is not None


async def _ended(start: asyncio.Task[tuple[PeerProcess, Any]]) -> None:
    """End a start that runs, or the process that it gave."""
    await cancel_and_wait(start)
    if not start.cancelled() and start.exception() is None:
        await start.result()[0].close()
