"""The peer process that the sessions of an environment share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymmesh_resource.peer_processes.peer_process import PeerProcess


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
        self._process: PeerProcess | None = None
        self._opened: Any = None
        self._starting = asyncio.Lock()

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
        process, self._process = self._process, None
        if process is not None:
            await process.close()

    async def _ready(self) -> tuple[PeerProcess, Any]:
        async with self._starting:
            if self._process is None or self._process.lost is not None:
                await self.close()
                process = self._make()
                try:
                    await process.open()
                    self._opened = await process.call(self._opening, self._params, self._opening_s)
                except BaseException:
                    await asyncio.shield(process.close())
                    raise
                self._process = process
            return self._process, self._opened
