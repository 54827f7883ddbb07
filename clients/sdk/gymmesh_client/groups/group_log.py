"""NAME.groups: the notes of `share_records`, a JSON object a line, written while a run hands out
groups.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from gymmesh_client.disk import Disk, cannot_write
from gymmesh_client.groups.share_records import GroupsDone, ShareRecord, SharesState
from gymmesh_client.problems import UserError, unreadable
from gymmesh_runtime.timers import to_its_end

_VERSION: Final = 1


class _Header(msgspec.Struct, tag_field="record", tag="groups", frozen=True):
    """The first line."""

    version: int
    run_id: str


_ENCODER: Final = msgspec.json.Encoder()
_HEADER: Final = msgspec.json.Decoder(_Header)
_RECORD: Final = msgspec.json.Decoder(ShareRecord)


class GroupLog:
    """The file, open for writing. Get one from `create` or `resume`.

    A process that is killed loses what it noted after the last `saved`; so the caller waits for
    `saved` before it tells anybody.
    """

    def __init__(self, path: Path, fd: int, size: int, disk: Disk) -> None:
        self._path = path
        self._fd = fd
        self._size = size
        self._disk = disk
        self._noted: list[bytes] = []
        self._writing = asyncio.Lock()

    @classmethod
    def create(
        cls, path: Path, run_id: str, done: Iterable[str], disk: Disk | None = None
    ) -> GroupLog:
        """A new file in place of one that may be there. done: tasks whose groups ended before.

        Raises OutputError.
        """
        disk = disk or Disk()
        try:
            fd = disk.open(path)
            log = cls(path, fd, 0, disk)
            disk.cut(fd, 0)
            log._noted.append(_ENCODER.encode(_Header(_VERSION, run_id)) + b"\n")
            if tasks := sorted(done):
                log.note([GroupsDone(tasks)])
            log._write(log._taken())
            disk.sync_folder(path.parent)
        except OSError as error:
            raise cannot_write(path, error) from None
        return log

    @classmethod
    def resume(
        cls, path: Path, run_id: str, disk: Disk | None = None
    ) -> tuple[GroupLog, SharesState]:
        """The file of an earlier session, and what it says.

        Raises UserError where it is damaged or another run's; OutputError.
        """
        disk = disk or Disk()
        try:
            content = path.read_bytes()
        except OSError as error:
            raise unreadable(path, error) from None
        # A process that was killed leaves half a line: nobody was told what it says.
        size = content.rfind(b"\n") + 1
        state = _read(path, content[:size].splitlines(), run_id)
        try:
            fd = disk.open(path)
            disk.cut(fd, size)
        except OSError as error:
            raise cannot_write(path, error) from None
        return cls(path, fd, size, disk), state

    def note(self, records: Iterable[ShareRecord]) -> None:
        """Write these with the next `saved` or `close`."""
        self._noted.extend(_ENCODER.encode(record) + b"\n" for record in records)

    async def saved(self) -> None:
        """Return once all that was noted is on disk. Raises OutputError."""
        if self._noted or self._writing.locked():
            await to_its_end(self._save())

    async def close(self) -> None:
        """Write what is noted, and close the file. Raises OutputError."""
        try:
            await self.saved()
        finally:
            os.close(self._fd)

    async def _save(self) -> None:
        async with self._writing:
            lines = self._taken()
            if lines:
                try:
                    await asyncio.to_thread(self._write, lines)
                except OSError as error:
                    raise cannot_write(self._path, error) from None

    def _taken(self) -> bytes:
        lines, self._noted = b"".join(self._noted), []
        return lines

    def _write(self, lines: bytes) -> None:
        self._disk.write(self._fd, lines, self._size)
        self._size += len(lines)
        self._disk.sync(self._fd)


def _read(path: Path, lines: list[bytes], run_id: str) -> SharesState:
    try:
        header = _HEADER.decode(lines[0] if lines else b"")
    except msgspec.DecodeError as error:
        raise _damaged(path, 1, error) from None
    if header.version != _VERSION:
        raise UserError(
            f"{path}: has version {header.version} of the format, and this gymmesh reads "
            f"{_VERSION}. Resume with the gymmesh that wrote it"
        )
    if header.run_id != run_id:
        raise UserError(
            f"{path}: belongs to the run {header.run_id}, not to {run_id}. Move it away"
        )
    state = SharesState()
    for number, line in enumerate(lines[1:], 2):
        try:
            state.apply(_RECORD.decode(line))
        except (msgspec.DecodeError, KeyError) as error:
            raise _damaged(path, number, error) from None
    return state


def _damaged(path: Path, number: int, error: Exception) -> UserError:
    return UserError(
        f"{path}:{number}: is damaged: {error}. Restore the file, or delete it: then the groups "
        "that ended before are sent to nobody. Their rows stay"
    )
