"""Reading a journal's log: its commits, its latest session, the order in which rollouts began.

Nothing here changes a file. `journal` writes the log; `frames` knows its bytes.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from gymmesh_client import log_records as records
from gymmesh_client.disk import lock
from gymmesh_client.log.frames import HEADER, Damage, LogFrame, scan
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.problems import UserError, unreadable

_PAGES_KEPT: Final = 1 << 22


@contextlib.contextmanager
def opened(files: OutputFiles) -> Iterator[int]:
    """The journal of a run, open for reading. Raises UserError where it cannot be read, or a record
    that is read in the block is damaged.
    """
    try:
        fd = os.open(files.journal, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(files.journal, error) from None
    try:
        yield fd
    except records.BadRecord as error:
        raise UserError(
            f"{files.journal} is damaged: {error}. Restore the file from a copy"
        ) from None
    finally:
        os.close(fd)


@contextlib.contextmanager
def mapped(fd: int) -> Iterator[bytes | mmap.mmap]:
    """A file's bytes, as they are now."""
    size = os.fstat(fd).st_size
    if not size:
        yield b""
        return
    with mmap.mmap(fd, size, access=mmap.ACCESS_READ) as data:
        yield data


def frames_of(
    data: bytes | mmap.mmap, files: OutputFiles, start: int = len(HEADER), sequence: int = 0
) -> Iterator[LogFrame]:
    """The whole commits of a journal, as `scan` has them; memory does not grow with it. Raises
    UserError where it is no journal, or damaged elsewhere than at its end.
    """
    if data[: len(HEADER)] != HEADER:
        raise UserError(
            f"{files.journal} is damaged at its beginning, or is not a journal of this version of "
            "gymmesh"
        )
    try:
        kept_from = start - start % mmap.PAGESIZE
        for frame in scan(data, start, sequence):
            yield frame
            if frame.end - kept_from > _PAGES_KEPT:
                kept_from = _forget(data, kept_from, frame.end)
    except Damage as damage:
        raise UserError(
            f"{files.journal}: {damage}, but intact commits follow. Nothing was changed. Restore "
            "the file from a copy, or start again with --overwrite"
        ) from None


def latest_session(files: OutputFiles) -> dict[str, Any] | None:
    """The latest session's record of a run; None if there is no journal. Raises UserError if the
    journal is damaged, or if a collector is using it.
    """
    if not files.journal.exists():
        return None
    found: dict[str, Any] | None = None
    with opened(files) as fd, mapped(fd) as data:
        lock(fd, files.journal)
        for frame in frames_of(data, files):
            # A session is always the first record of its commit.
            if frame.payload[:1] == records.SESSION_TYPE:
                record = next(records.decode(frame.payload))
                found = record.info if isinstance(record, records.RunOpened) else found
    if found is None:
        raise unnamed_run(files)
    return found


def first_session(files: OutputFiles) -> dict[str, Any]:
    """The first session's record of a run, layout included; may be empty. Also works while a
    collector is running. Raises UserError if the journal cannot be read or is damaged.
    """
    with opened(files) as fd, mapped(fd) as data:
        for frame in frames_of(data, files):
            record = next(iter(records.decode(frame.payload)), None)
            if isinstance(record, records.RunOpened):
                return record.info
    return {}


def unnamed_run(files: OutputFiles) -> UserError:
    """The error for a journal without a session."""
    return UserError(
        f"{files.journal} is damaged: the journal does not name the run. Restore the file from "
        "a copy"
    )


def first_reserved(files: OutputFiles) -> Iterator[bytes]:
    """The key of each rollout that was begun, once, in the order of their first attempts.

    Attempts that were reserved and not sent, as at a session's end, count where they were reserved
    again. In memory are those of such sessions, a few hundred each. Raises UserError as `opened`.
    """
    given_back: Counter[bytes] = Counter()
    for record in _reservations(files):
        if isinstance(record, records.Released):
            given_back.update(key for key, attempt in record.attempts if attempt == 1)
    for record in _reservations(files):
        if isinstance(record, records.Released):
            continue
        for key, attempt in record.attempts:
            if attempt != 1:
                continue
            if given_back[key]:
                given_back[key] -= 1
            else:
                yield key


def _reservations(files: OutputFiles) -> Iterator[records.Reserved | records.Released]:
    with opened(files) as fd, mapped(fd) as data:
        for frame in frames_of(data, files):
            for kind, body in records.bodies(frame.payload):
                if kind in (records.RESERVED_TYPE, records.RELEASED_TYPE):
                    record = records.decode_one(kind, body)
                    if isinstance(record, records.Reserved | records.Released):
                        yield record


def _forget(data: bytes | mmap.mmap, start: int, end: int) -> int:
    """Give back the memory of pages that were read; where the pages kept begin."""
    end -= end % mmap.PAGESIZE
    if isinstance(data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        data.madvise(mmap.MADV_DONTNEED, start, end - start)
    return end
