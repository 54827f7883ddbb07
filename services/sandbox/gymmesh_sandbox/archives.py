"""Archives that arrive in pieces, until they are complete and can be unpacked."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import tempfile
from collections.abc import Awaitable, Callable
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import files_pb2
from gymmesh_runtime.errors import MeshError, field_invalid
from gymmesh_sandbox.timers import Timer, Timers

_IDLE_S: Final = 60.0


class _Archive:
    """An archive of which some pieces arrived. `path` is empty after it was unpacked."""

    def __init__(self, path: str, kind: int) -> None:
        self.path = path
        self.kind = kind
        self.received = 0
        self.unpacking: asyncio.Task[None] | None = None
        self.timer: Timer | None = None
        self.lock = asyncio.Lock()


class Archives:
    """The archives that are written to one sandbox.

    Args:
        folder: where archives are stored while they arrive.
        sandbox_id: for the errors.
        max_bytes: the maximum bytes of all stored archives.
        repeat_s: how long an unpacked archive is remembered, for repeats.
        timers: the service's timers.
    """

    def __init__(
        self, folder: str, sandbox_id: str, max_bytes: int, repeat_s: float, timers: Timers
    ) -> None:
        self._folder = folder
        self._sandbox_id = sandbox_id
        self._max_bytes = max_bytes
        self._repeat_s = repeat_s
        self._timers = timers
        self._by_id: dict[str, _Archive] = {}
        self._kept = 0

    async def add(
        self,
        request: files_pb2.WriteArchiveRequest,
        unpack: Callable[[str], Awaitable[None]],
    ) -> int:
        """Adds a piece. After the last piece, calls `unpack` with the archive's path.

        Returns how many bytes arrived so far. Raises FIELD_INVALID, REQUEST_ID_REUSED,
        SANDBOX_DISK_FULL and what `unpack` raises.
        """
        kind = hash((request.path, request.format, request.user))
        archive = self._by_id.get(request.request_id)
        if archive is None:
            if request.offset:
                raise field_invalid(
                    "offset", f"is {request.offset}, but no earlier piece of the archive arrived"
                )
            archive = self._by_id[request.request_id] = _Archive(self._new_file(), kind)
        elif archive.kind != kind:
            raise MeshError(
                errors_pb2.ERROR_REASON_REQUEST_ID_REUSED,
                "The request_id was already used for another archive. Use a new request_id.",
                metadata={"request_id": request.request_id},
            )
        async with archive.lock:
            await self._take(archive, request)
            if request.last and archive.path and archive.unpacking is None:
                work = self._unpack(request.request_id, archive, unpack)
                archive.unpacking = asyncio.get_running_loop().create_task(work)
        if request.last and archive.unpacking is not None:
            # It runs on when the caller goes away.
            await asyncio.wait((archive.unpacking,))
            archive.unpacking.result()
        return archive.received

    async def close(self) -> None:
        """Drops all archives."""
        tasks = [one.unpacking for one in self._by_id.values() if one.unpacking is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for request_id in list(self._by_id):
            self._drop(request_id)

    async def _take(self, archive: _Archive, request: files_pb2.WriteArchiveRequest) -> None:
        known = archive.received - request.offset
        if known < 0:
            problem = f"is {request.offset}, but only {archive.received} bytes arrived so far"
            raise field_invalid("offset", problem)
        rest = request.content[known:]
        if rest:
            if not archive.path or archive.unpacking is not None:
                raise field_invalid("offset", "is beyond the last piece of the archive")
            if self._kept + len(rest) > self._max_bytes:
                raise field_invalid(
                    "content",
                    f"would make the archives of this sandbox larger than {self._max_bytes} bytes",
                )
            self._kept += len(rest)
            try:
                await asyncio.to_thread(_write, archive.path, archive.received, rest)
            except OSError as error:
                self._kept -= len(rest)
                raise self._disk_error(error) from None
            archive.received += len(rest)
        if archive.path and archive.unpacking is None:
            self._keep(request.request_id, archive, _IDLE_S)

    async def _unpack(
        self, request_id: str, archive: _Archive, unpack: Callable[[str], Awaitable[None]]
    ) -> None:
        if archive.timer is not None:
            archive.timer.cancel()
        try:
            await unpack(archive.path)
        finally:
            self._remove_file(archive)
            self._keep(request_id, archive, self._repeat_s)

    def _keep(self, request_id: str, archive: _Archive, seconds: float) -> None:
        if archive.timer is not None:
            archive.timer.cancel()
        archive.timer = self._timers.after(seconds, lambda: self._drop(request_id))

    def _drop(self, request_id: str) -> None:
        archive = self._by_id.pop(request_id, None)
        if archive is not None:
            if archive.timer is not None:
                archive.timer.cancel()
            self._remove_file(archive)

    def _remove_file(self, archive: _Archive) -> None:
        if archive.path:
            with contextlib.suppress(OSError):
                os.unlink(archive.path)
            archive.path = ""
            self._kept -= archive.received

    def _new_file(self) -> str:
        try:
            number, path = tempfile.mkstemp(prefix="archive-", dir=self._folder)
        except OSError as error:
            raise self._disk_error(error) from None
        os.close(number)
        return path

    def _disk_error(self, error: OSError) -> MeshError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return MeshError(
                errors_pb2.ERROR_REASON_SANDBOX_DISK_FULL,
                "The host of the sandbox has no space left for the archive.",
                metadata={"sandbox_id": self._sandbox_id, "disk": "host"},
            )
        return MeshError(
            errors_pb2.ERROR_REASON_INTERNAL_FAULT,
            f"The service cannot store the arriving archive: {error.strerror}.",
        )


def _write(path: str, offset: int, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(content)
