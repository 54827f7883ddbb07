"""The file NAME.groups: the records of `share_records`, one JSON object on each line.

A collector writes this file while its run hands out groups.
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
    """The first line of the file."""

    version: int
    run_id: str


_ENCODER: Final = msgspec.json.Encoder()
_HEADER: Final = msgspec.json.Decoder(_Header)
_RECORD: Final = msgspec.json.Decoder(ShareRecord)


class GroupLog:
    """The file, open for writing. Create one with `create` or `resume`.

    A process that is killed loses the records that it noted after the last `saved`. So the caller
    waits for `saved` before it sends a group or confirms an acknowledgement.
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
        """Create the file, or replace an existing file.

        Args:
            done: the tasks whose groups are not handed out, because they have outcomes from a time
                without notes.

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
        """Open the file of an earlier session. Returns the file, and the state after its records.

        Raises UserError if the file is damaged or belongs to another run; OutputError.
        """
        disk = disk or Disk()
        try:
            content = path.read_bytes()
        except OSError as error:
            raise unreadable(path, error) from None
        # A killed process may leave half a line. Nothing was sent because of that line.
        size = content.rfind(b"\n") + 1
        state = _read(path, content[:size].splitlines(), run_id)
        try:
            fd = disk.open(path)
            disk.cut(fd, size)
        except OSError as error:
            raise cannot_write(path, error) from None
        return cls(path, fd, size, disk), state

    def note(self, records: Iterable[ShareRecord]) -> None:
        """Add records; the next `saved` or `close` writes them."""
        self._noted.extend(_ENCODER.encode(record) + b"\n" for record in records)

    async def saved(self) -> None:
        """Return once all noted records are on disk. Raises OutputError."""
        if self._noted or self._writing.locked():
            await to_its_end(self._save())

    async def close(self) -> None:
        """Write the noted records, and close the file. Raises OutputError."""
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
            f"{path}: has format version {header.version}, but this version of gymmesh reads only "
            f"format version {_VERSION}. Resume with the version of gymmesh that wrote the file"
        )
    if header.run_id != run_id:
        raise UserError(
            f"{path}: belongs to run {header.run_id}, not to run {run_id}. Move the file to "
            "another folder"
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
        f"{path}:{number}: is damaged: {error}. Restore the file from a copy, or delete the "
        "file. Without the file, groups that already have a finished rollout are not sent to a "
        "trainer, but the rows of these groups stay on disk"
    )
