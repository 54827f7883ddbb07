"""The events of a daemon: which containers ended, and whether the daemon is still reachable."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from gymmesh_sandbox.backends.docker.engine import FAILURES, DockerEngine
from gymmesh_sandbox.backends.docker.images import INSTANCE

_PAUSE_S: Final = 0.5
_GONE_S: Final = 5.0
_ENDED: Final = frozenset(("die", "died", "remove", "destroy"))

_LOGGER = logging.getLogger("gymmesh.sandbox.docker")


class Watch:
    """Receives the events of one instance's containers until it is closed.

    Args:
        on_end: called with a container's id when it has ended.
        on_connected: called with the instance's id after each connection, because earlier events
            were missed.
        on_gone: called if the daemon could not be reached for some seconds.
    """

    def __init__(
        self,
        engine: DockerEngine,
        *,
        on_end: Callable[[str], Awaitable[None]],
        on_connected: Callable[[str], Awaitable[None]],
        on_gone: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._on_end = on_end
        self._on_connected = on_connected
        self._on_gone = on_gone
        self._task: asyncio.Task[None] | None = None

    def start(self, instance_id: str) -> None:
        """Starts to receive events; call it once."""
        if self._task is None:
            work = self._listen(instance_id)
            self._task = asyncio.get_running_loop().create_task(work)

    async def close(self) -> None:
        """Stops receiving events."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _listen(self, instance_id: str) -> None:
        clock = asyncio.get_running_loop().time
        filters = json.dumps({"type": ["container"], "label": [f"{INSTANCE}={instance_id}"]})
        heard = clock()
        while True:
            try:
                async with self._engine.request(
                    "GET", "events", {"filters": filters, "stream": "true"}
                ) as response:
                    await self._on_connected(instance_id)
                    async for line in response.content:
                        await self._take(line)
                heard = clock()
            except FAILURES as error:
                _LOGGER.debug("the events of the daemon cannot be read: %s", error)
                if clock() - heard > _GONE_S:
                    self._on_gone()
            await asyncio.sleep(_PAUSE_S)

    async def _take(self, line: bytes) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            return
        if isinstance(said, dict) and said.get("Action", said.get("status")) in _ENDED:
            found = said.get("id") or (said.get("Actor") or {}).get("ID")
            if isinstance(found, str):
                await self._on_end(found)
