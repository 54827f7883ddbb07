"""The index of a run: a SQLite file with a row for each attempt that ended.

It is derived from the journal and the rows, so it is never repaired: one that is missing, damaged
or of another version is made anew, and one that is older than its journal is copied and continued.
Either way it is written beside its place and renamed, and it is only ever read as an immutable
file. So it takes no locks, leaves no `-wal` or `-shm` beside it, and works on network file
systems.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from gymmesh_client.journal.format.layout import OutputFiles
from gymmesh_client.journal.format.records import COMPLETED, FAILED, Place, checked_session
from gymmesh_client.journal.index.build import IndexBuilder
from gymmesh_client.journal.index.rows import boundary_number
from gymmesh_client.journal.index.tables import (
    APPLICATION_ID,
    INDEX_BEGIN,
    INDICES,
    TABLES,
    VERSION,
)
from gymmesh_client.journal.log import mapped
from gymmesh_client.problems import UserError

_HEADER_BYTES: Final = 100
# Of SQLite's file header: the page size, the number of pages, the two marks of the owner.
_PAGE_SIZE: Final = struct.Struct(">16xH")
_PAGES: Final = struct.Struct(">28xI")
_MARKS: Final = struct.Struct(">60xi4xi")
_MOST: Final = 1 << 32  # of what a place says but its offset
_STATUS: Final = {"completed": COMPLETED, "failed": FAILED}
_FIND: Final = """
    SELECT attempt, current, outcome, boundary, superseded, ended_at,
           row_kind, row_shard, row_offset, row_inner, row_length, row_bytes, row_crc
    FROM attempts WHERE rollout_key = ? ORDER BY rowid
"""


class Entry(NamedTuple):
    """An attempt that ended.

    Attributes:
        attempt: its number.
        current: whether this is the rollout's outcome.
        status: COMPLETED or FAILED.
        boundary: where a failed one failed, a `gymmesh.rollout.v1.Boundary`.
        superseded: why it is no longer current; None where it is, or where it failed and another
            attempt followed.
        time_unix_nano: when it was written.
        place: where its row is; None for one that failed and was tried again.
    """

    attempt: int
    current: bool
    status: int
    boundary: int
    superseded: str | None
    time_unix_nano: int
    place: Place | None


class Index:
    """An index that is open; get one from `open_index`.

    Attributes:
        info: what the journal said of the run: `session`, `ended`, `counts` (current outcomes by
            status), `ends` (kind, shard and bytes of each row file), `superseded` (places of
            superseded rows that still stand in their files), `compacted` (kind, shard and the
            number of the latest compaction); and which journal that was.
    """

    def __init__(self, path: Path) -> None:
        """Raises ValueError where the file is no index of this version, and OSError."""
        _check_header(path)
        self._path = path
        # Immutable: no file of this name is ever written in its place, so there is nothing to lock.
        uri = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"
        self._database = sqlite3.connect(uri, uri=True, check_same_thread=False)
        try:
            self._database.execute("PRAGMA trusted_schema = OFF")  # anybody may have written it
            self.info = self._read_info()
        except BaseException:
            self._database.close()
            raise

    def find(self, key: bytes) -> list[Entry]:
        """All that the journal says of a rollout, oldest first.

        Raises:
            UserError: the index is damaged.
        """
        try:
            return [_entry(*values) for values in self._database.execute(_FIND, (key,))]
        except (sqlite3.DatabaseError, TypeError, ValueError) as error:
            raise UserError(
                f"{self._path}: is damaged ({error}); remove it, and it is made anew"
            ) from None

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._database.close()

    def _read_info(self) -> dict[str, Any]:
        try:
            # A view or a trigger by the name of a table could do anything.
            if _schema_of(self._database) != _own_schema():
                raise ValueError("not the tables of an index")
            info = {
                str(key): json.loads(value)
                for key, value in self._database.execute("SELECT key, value FROM run")
            }
            _check_info(info)
        except (sqlite3.DatabaseError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(str(error)) from None
        return info


def open_index(files: OutputFiles) -> Index:
    """The index of a run's journal as it is now; made or continued where it is not.

    Raises:
        UserError: there is no journal, or it is damaged.
        OSError: a file cannot be read or written.
    """
    try:
        fd = os.open(files.journal, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise UserError(
            f"{files.journal}: is missing, so {files.rows} is not the output of a run, or of one "
            "from before there was a journal; that one gets it when it is gone on with --resume"
        ) from None
    try:
        found = _open(files.index)
        older = None
        if found is not None:
            read, digest = found.info["journal_bytes"], found.info["digest"]
            same_run = digest == _digest(fd, read) and found.info["stem"] == files.stem
            if same_run and read == os.fstat(fd).st_size:
                return found
            found.close()
            older = found.info if same_run else None
        return _build(files, fd, older)
    finally:
        os.close(fd)


def _open(path: Path) -> Index | None:
    try:
        return Index(path)
    except (OSError, ValueError):
        return None


def _schema_of(database: sqlite3.Connection) -> frozenset[tuple[str, str, str, str | None]]:
    return frozenset(database.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"))


@cache
def _own_schema() -> frozenset[tuple[str, str, str, str | None]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.executescript(TABLES + INDICES)
        return _schema_of(database)


def _check_header(path: Path) -> None:
    """Raise ValueError unless a file is a whole index of this version; OSError."""
    with path.open("rb") as file:
        head = file.read(_HEADER_BYTES)
        size = os.fstat(file.fileno()).st_size
    if len(head) < _HEADER_BYTES or not head.startswith(INDEX_BEGIN):
        raise ValueError("not an index")
    (page_size,) = _PAGE_SIZE.unpack_from(head)
    (pages,) = _PAGES.unpack_from(head)
    if _MARKS.unpack_from(head) != (VERSION, APPLICATION_ID) or size != page_size * pages:
        raise ValueError("not an index of this version, or cut short")


def _check_info(info: dict[str, Any]) -> None:
    """Raise ValueError or KeyError for what `IndexBuilder` would not say; anybody may have written
    the file.
    """
    checked_session(info["session"])
    numbers = [
        info["journal_bytes"],
        *info["next"],
        *(info["counts"][str(status)] for status in (COMPLETED, FAILED)),
        *chain.from_iterable(info["ends"] + info["superseded"] + info["compacted"]),
    ]
    if any(type(number) is not int or number < 0 for number in numbers):
        raise ValueError("a number is none")
    if any(len(file) != 3 for file in info["ends"] + info["compacted"]):
        raise ValueError("a file is none")
    if any(len(place) != 7 for place in info["superseded"]):
        raise ValueError("a place is none")
    if len(info["next"]) != 2:
        raise ValueError("it does not say where to go on")
    if type(info["digest"]) is not str or type(info["stem"]) is not str:
        raise ValueError("it does not say which journal it is of")


def _digest(fd: int, size: int) -> str:
    """What tells one journal of a size from another: its last bytes hold a checksum and a time."""
    return os.pread(fd, 64, max(0, size - 64)).hex()


def _build(files: OutputFiles, fd: int, older: dict[str, Any] | None) -> Index:
    """Make the index, from the older one that is there if `older` is what that one says."""
    keep = os.access(files.index.parent, os.W_OK)
    with _draft(files.index, keep) as draft:
        if older is not None:
            try:
                shutil.copyfile(files.index, draft)
            except OSError:
                older = None
        try:
            _fill(files, fd, draft, older)
        except sqlite3.DatabaseError as error:
            # A full disk and a damaged older index look alike: what is made anew tells.
            if older is None:
                raise OSError(0, f"the index cannot be written: {error}") from None
            draft.write_bytes(b"")
            _fill(files, fd, draft, None)
        os.chmod(draft, os.fstat(fd).st_mode & 0o666)
        built = Index(draft)
        if keep:
            draft.replace(files.index)
        return built


def _fill(files: OutputFiles, fd: int, draft: Path, older: dict[str, Any] | None) -> None:
    with mapped(fd) as data, IndexBuilder(files, draft, older) as builder:
        read = builder.take(data)
        builder.finish({"journal_bytes": read, "digest": _digest(fd, read), "stem": files.stem})


@contextlib.contextmanager
def _draft(path: Path, keep: bool) -> Iterator[Path]:
    """An empty file to write an index to, gone at the end unless it was renamed."""
    number, name = tempfile.mkstemp(dir=path.parent if keep else None, prefix=path.name + ".")
    os.close(number)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _entry(
    attempt: int,
    current: int,
    outcome: str,
    boundary: str | None,
    superseded: str | None,
    ended_at: int,
    *place: int | None,
) -> Entry:
    has_row = all(type(number) is int and number >= 0 for number in place)
    if has_row and any(number >= _MOST for number in place[-4:] if number):
        raise ValueError("a row is longer than any")
    return Entry(
        attempt,
        bool(current),
        _STATUS.get(outcome, 0),
        boundary_number(boundary),
        superseded,
        ended_at,
        Place._make(number or 0 for number in place) if has_row else None,
    )
