"""The few things a journal asks of a disk; tests put a failing one in its place."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gymmesh_client.problems import UserError, unwritable
from gymmesh_client.safe_writes import OWNER_ONLY, sync_folder

# What room mends; all else is a right that is missing, or a device that is gone.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class OutputError(UserError):
    """The output can't be written any more (disk full, device lost); the run can't continue."""


class Disk:
    """Files by their descriptors. Every method raises OSError."""

    def open(self, path: Path) -> int:
        """A file to read and write, made for its owner alone if it is not there."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)

    def write(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of the data at an offset."""
        view = memoryview(data)
        while view:
            written = os.pwrite(fd, view, offset)
            view, offset = view[written:], offset + written

    def sync(self, fd: int) -> None:
        """Return when what was written is on disk, the file's size included."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(fd)
        else:
            os.fsync(fd)

    def cut(self, fd: int, size: int) -> None:
        """Make the file end there."""
        os.ftruncate(fd, size)

    def replace(self, draft: Path, path: Path) -> None:
        """Put a file, which is on disk under another name, in a file's place, for good."""
        draft.replace(path)
        self.sync_folder(path.parent)

    def sync_folder(self, folder: Path) -> None:
        """Put the entries of a folder's files on disk."""
        sync_folder(folder)


def lock(fd: int, path: Path) -> None:
    """Keep other collectors out until the file is closed. Raises UserError if a collector writes
    the file.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise UserError(
            f"{path}: another collector is writing to this file. Wait until it ends"
        ) from None


@contextlib.contextmanager
def existing_locked(path: Path) -> Iterator[None]:
    """Keep other collectors out of a file, if it is there, as `lock` does. Raises OutputError where
    it cannot be opened for writing.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        fd = -1
    except OSError as error:
        raise cannot_write(path, error) from None
    try:
        if fd >= 0:
            lock(fd, path)
        yield
    finally:
        if fd >= 0:
            os.close(fd)


def cannot_write(path: Path, error: OSError) -> OutputError:
    """The one sentence for a file or folder that cannot be written any more."""
    mend = "make room" if error.errno in _FULL else "make it writable"
    return OutputError(
        f"{unwritable(path, error)}. All counted outcomes are on disk: {mend} and resume with "
        "--resume"
    )
