"""The snapshots of an instance, by name, and when each is removed."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from typing import Final

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.errors import field_invalid
from gymmesh_sandbox.backends import RunningSandbox, SandboxBackend
from gymmesh_sandbox.timers import Timer, Timers

_ID_BYTES: Final = 16
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LOGGER = logging.getLogger("gymmesh.sandbox")


class Snapshots:
    """The snapshots that this process of the instance created."""

    def __init__(self, backend: SandboxBackend, timers: Timers) -> None:
        self._backend = backend
        self._timers = timers
        self._timer_of: dict[str, Timer | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(
        self, running: RunningSandbox, name: str = "", ttl_s: float = 0.0
    ) -> sandbox_pb2.Image:
        """Saves a file system under a name, for this many seconds; 0: until `close`.

        Raises FIELD_INVALID for a name that is taken or invalid.
        """
        if name and not _NAME.fullmatch(name):
            raise field_invalid(
                "name",
                "must have 1 to 128 characters: letters, digits, dots, dashes or underscores",
            )
        taken = name in self._timer_of
        if name and (taken or any(one.name == name for one in await self._backend.images())):
            raise field_invalid(
                "name", f"is {name!r}, but an image or snapshot already has this name"
            )
        name = name or f"snapshot-{secrets.token_hex(_ID_BYTES)}"
        self._timer_of[name] = None
        try:
            image = await running.snapshot(name)
        except BaseException:
            self._timer_of.pop(name, None)
            raise
        if ttl_s:
            self._timer_of[name] = self._timers.after(ttl_s, lambda: self._expire(name))
        return image

    async def delete(self, name: str) -> None:
        """Removes a snapshot; does nothing if there is none."""
        if name in self._timer_of:
            timer = self._timer_of.pop(name)
            if timer is not None:
                timer.cancel()
            await self._backend.delete_snapshot(name)

    async def close(self) -> None:
        """Removes all snapshots."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for name in list(self._timer_of):
            await self._delete_logged(name)

    def _expire(self, name: str) -> None:
        task = asyncio.get_running_loop().create_task(self._delete_logged(name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _delete_logged(self, name: str) -> None:
        try:
            await self.delete(name)
        except Exception:
            _LOGGER.exception("the snapshot %s could not be removed", name)
