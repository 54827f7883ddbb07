"""A folder of side data, each in a file named by the SHA-256 of its numbers.

A file at `6f/6f1e…` in the folder contains only the numbers. It is written under another name and
renamed, so several processes and machines can share a folder without a lock. A reader must compare
the digest. Numbers that are already stored are not stored twice. Files are not flushed to the disk
one by one: after a crash of the machine a file may be damaged, which its digest shows.

If the folder exceeds its bound, the oldest files are deleted, and also files older than the maximum
age. A file's time is when it was last written. Each process checks the whole folder when it opens
the store, and again whenever it has written a twentieth of the bound. So each process can exceed
the bound by that much.

All of it runs in threads of its own: an event loop never waits for a disk, and hashing and writing
leave the interpreter to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final, TypeVar

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import tokens_pb2
from gymmesh_model import metrics
from gymmesh_model.config import SideDataConfig
from gymmesh_model.errors import misconfigured
from gymmesh_model.tokens import SideRows
from gymmesh_responses import DIGEST_BYTES, MOST_INLINE_BYTES, side_data_place
from gymmesh_runtime.errors import MeshError, field_invalid

T = TypeVar("T")

PIECE_BYTES: Final = 1024 * 1024
"""The most bytes that are read as one piece."""
_FRESH: Final = ".fresh-"
# A file being written that is older was left behind by a process that died.
_STALE_S: Final = 3600.0
# Hashed and written in turns of so many bytes, while they are in the processor's cache.
_STEP_BYTES: Final = 1024 * 1024
# More would only wait for the same disk.
_THREADS: Final = 4
_log = logging.getLogger("gymmesh.model")


class SideDataStore:
    """The side data of the model `name`. Opened once, closed once."""

    def __init__(self, name: str, config: SideDataConfig) -> None:
        self._name = name
        self._folder = Path(config.path).expanduser().absolute()
        self._max_bytes = config.max_bytes
        self._max_age_s = config.max_age_s
        self._threads: ThreadPoolExecutor | None = None
        self._written = 0
        self._opened_at = time.time()
        self._has_warned = False
        self._stored = metrics.MODEL_SIDE_DATA_BYTES.labels(name, "stored")
        self._deleted = metrics.MODEL_SIDE_DATA_BYTES.labels(name, "deleted")

    async def open(self) -> None:
        """Makes the folder and deletes the oldest files beyond its bounds.

        Raises ConfigError when it cannot be used.
        """
        self._threads = ThreadPoolExecutor(_THREADS, "gymmesh-side-data")
        try:
            await self._in_thread(self._prepare)
        except OSError as error:
            await self.close()
            raise misconfigured(
                self._name,
                f"side_data.path '{self._folder}' cannot be used ({error.strerror or error}); set "
                "side_data.path to a folder that this process can write to",
            ) from None

    async def close(self) -> None:
        """Ends its threads; what they write is finished, but nobody waits for it."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    async def put(self, rows: SideRows) -> tokens_pb2.SideData:
        """Stores rows and returns the reference to them; few numbers are in it themselves.

        Raises MeshError SIDE_DATA_NOT_STORED when the folder can't be written to.
        """
        data = memoryview(rows.data).cast("B")
        side = tokens_pb2.SideData(
            name=rows.name,
            dtype=rows.dtype,
            shape=rows.shape,
            first_token=rows.first_token,
            tokens=rows.tokens,
        )
        if len(data) <= MOST_INLINE_BYTES:
            side.data = bytes(data)
            side.digest = hashlib.sha256(data).digest()
            return side
        try:
            side.digest = await self._in_thread(lambda: self._write(data))
        except OSError as error:
            raise self._not_stored(error) from None
        side.location = self._path(side.digest).as_uri()
        self._stored.inc(len(data))
        self._written += len(data)
        if self._written > self._max_bytes / 20:
            self._written = 0
            await self._in_thread(self._clean)
        return side

    async def read(self, digest: bytes, offset: int) -> AsyncGenerator[tuple[bytes, int], None]:
        """The numbers of a digest from a byte on, in pieces, each with the size of all.

        Raises MeshError SIDE_DATA_NOT_FOUND, or FIELD_INVALID for what is no digest or offset.
        """
        if len(digest) != DIGEST_BYTES:
            raise field_invalid("digest", f"has {len(digest)} bytes, not {DIGEST_BYTES}")
        try:
            file = await self._in_thread(lambda: self._path(digest).open("rb", buffering=0))
        except OSError:
            raise _not_found(digest) from None
        # Read to its end even if it is deleted meanwhile.
        with file:
            size = os.fstat(file.fileno()).st_size
            if offset > size:
                raise field_invalid(
                    "offset", f"is {offset}, but the side data has only {size} bytes"
                )
            file.seek(offset)
            while True:
                piece = await self._in_thread(lambda: _piece(file))
                yield piece, size
                offset += len(piece)
                if offset >= size or not piece:
                    return

    async def _in_thread(self, work: Callable[[], T]) -> T:
        threads = self._threads
        if threads is None:
            raise MeshError(errors.ERROR_REASON_DRAINING, f"model '{self._name}' is not open")
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    def _path(self, digest: bytes) -> Path:
        return self._folder / side_data_place(digest)

    def _prepare(self) -> None:
        self._folder.mkdir(0o755, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix=_FRESH):
            self._clean()

    def _write(self, data: memoryview) -> bytes:
        """The digest of numbers that are now in their file."""
        digest = hashlib.sha256()
        with tempfile.NamedTemporaryFile(
            dir=self._folder, prefix=_FRESH, buffering=0, delete=False
        ) as fresh:
            try:
                for start in range(0, len(data), _STEP_BYTES):
                    step = data[start : start + _STEP_BYTES]
                    digest.update(step)
                    _write_all(fresh.file, step)
                os.fchmod(fresh.fileno(), 0o644)  # readers may be other users
                found = digest.digest()
                path = self._path(found)
                path.parent.mkdir(0o755, exist_ok=True)
                os.replace(fresh.name, path)
            except BaseException:
                _remove(Path(fresh.name))
                raise
        return found

    def _clean(self) -> None:
        """Deletes files past their age, and the oldest until the rest is within the bound."""
        now = time.time()
        found, total = [], 0
        for entry in self._entries():
            with contextlib.suppress(OSError):
                status = entry.stat()
                if not entry.name.startswith(_FRESH):
                    found.append((status.st_mtime, status.st_size, entry.path))
                    total += status.st_size
                elif status.st_mtime < now - _STALE_S:
                    _remove(Path(entry.path))
        deleted, youngest = 0, 0.0
        for changed, size, path in sorted(found):
            age = now - changed
            too_old = self._max_age_s is not None and age > self._max_age_s
            if not too_old and total <= self._max_bytes:
                break
            # One that was stored again since is not the oldest any more.
            if _changed(path) == changed and _remove(Path(path)):
                deleted, youngest = deleted + 1, age
                self._deleted.inc(size)
            total -= size
        if deleted:
            # Somebody may not have read those yet; once says it, the metric counts on.
            is_own = now - youngest >= self._opened_at and not self._has_warned
            self._has_warned |= is_own
            _log.log(
                logging.WARNING if is_own else logging.INFO,
                "model %s: deleted old files of side data, to stay within side_data.max_bytes and "
                "side_data.max_age_s: %d deleted, the youngest %.0f s old",
                self._name,
                deleted,
                youngest,
            )

    def _entries(self) -> list[os.DirEntry[str]]:
        entries: list[os.DirEntry[str]] = []
        with os.scandir(self._folder) as folders:
            for folder in folders:
                if folder.name.startswith(_FRESH):
                    entries.append(folder)
                elif folder.is_dir(follow_symlinks=False) and len(folder.name) == 2:
                    with contextlib.suppress(OSError), os.scandir(folder.path) as files:
                        entries += files
        return entries

    def _not_stored(self, error: OSError) -> MeshError:
        cause = error.strerror or type(error).__name__
        return MeshError(
            errors.ERROR_REASON_SIDE_DATA_NOT_STORED,
            f"model '{self._name}' cannot write side data to '{self._folder}': {cause}",
            metadata={"model": self._name, "cause": cause},
        )


def _not_found(digest: bytes) -> MeshError:
    return MeshError(
        errors.ERROR_REASON_SIDE_DATA_NOT_FOUND,
        f"this model service stores no side data with the digest {digest.hex()}. The service "
        "deletes the oldest files when the files together exceed side_data.max_bytes, or when a "
        "file is older than side_data.max_age_s",
        metadata={"digest": digest.hex()},
    )


def _piece(file: IO[bytes]) -> bytes:
    return file.read(PIECE_BYTES)


def _write_all(file: IO[bytes], data: memoryview) -> None:
    while data:
        data = data[file.write(data) :]


def _changed(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True
