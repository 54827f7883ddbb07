"""The index of a run: a SQLite file with a row for each attempt that ended.

It is derived from the journal and the rows, so it is never repaired: one that is missing, damaged
or of another version is made anew, and one that is older than its journal is copied and continued
(`writer`). Either way it is written beside its place and renamed, and it is only ever read as an
immutable file. So it takes no locks, leaves no `-wal` or `-shm` beside it, and works on network
file systems. The page of gym-cli view continues a copy while it is open, with tables of its own,
and puts that in the place of the index when it closes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from gymmesh_client.boundaries import boundary_number
from gymmesh_client.index.run_attempts import OUTCOMES, digest_of
from gymmesh_client.index.seal import seal, sealed_size, unseal
from gymmesh_client.index.tables import (
    APPLICATION_ID,
    DETAILS,
    INDEX_VERSION,
    INDICES,
    TABLES,
    RunInfo,
)
from gymmesh_client.index.writer import IndexSource, IndexWriter
from gymmesh_client.log_records import Place, checked_session
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.problems import UserError

# What reading an index raises that no builder wrote.
_DAMAGE: Final = (sqlite3.Error, msgspec.ValidationError, AttributeError, TypeError, ValueError)
_FIND: Final = """
    SELECT attempt, outcome, current, boundary, superseded, ended_at,
           row_kind, row_shard, row_offset, row_inner, row_length, row_bytes, row_crc
    FROM attempts WHERE rollout_key = ? ORDER BY id
"""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The outcome of an attempt.

    Attributes:
        attempt: its number.
        outcome: `completed` or `failed`.
        current: whether this is the rollout's outcome.
        boundary: the boundary of a failed attempt, a `gymmesh.rollout.v1.Boundary`.
        superseded: why the outcome is not current; empty if it is current, or if the attempt failed
            and was retried within the run.
        time_unix_nano: when the outcome was written.
        row: its line of JSON; None if the attempt failed and was retried, or if it is `damaged`.
        damaged: whether its row was changed after it was written.
    """

    attempt: int
    outcome: str
    current: bool
    boundary: int
    superseded: str
    time_unix_nano: int
    row: bytes | None = None
    damaged: bool = False


class Index:
    """An index that is open; get one from `open_index`.

    Attributes:
        info: what the journal said of the run, and which journal that was.
    """

    def __init__(self, path: Path) -> None:
        """Raises ValueError where the file is no whole index of this version, and OSError."""
        self._path = path
        size = sealed_size(path)
        # Immutable: no file of this name is ever written in its place, so there is nothing to lock.
        uri = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"
        with contextlib.ExitStack() as opened:
            try:
                self._database = sqlite3.connect(uri, uri=True, check_same_thread=False)
                opened.callback(self._database.close)
                self.info = self._read_info(size)
            except _DAMAGE as error:
                raise ValueError(str(error)) from None
            opened.pop_all()

    def find(self, key: bytes) -> list[tuple[Attempt, Place | None]]:
        """All that the journal says of a rollout, oldest first: attempts without their rows, and
        where these are. Raises UserError where the index is damaged.
        """
        try:
            return [_entry(*values) for values in self._database.execute(_FIND, (key,))]
        except _DAMAGE as error:
            raise UserError(
                f"{self._path} is damaged ({error}). Delete this file; gymmesh rebuilds it"
            ) from None

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._database.close()

    def _read_info(self, size: int) -> RunInfo:
        ask = self._database.execute
        ask("PRAGMA trusted_schema = OFF")  # anybody may have written it
        marks = [ask(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")]
        if marks != [(APPLICATION_ID,), (INDEX_VERSION,)]:
            raise ValueError("not an index of this version")
        pages, page_size = (
            ask(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
        )
        if size != pages[0] * page_size[0]:
            raise ValueError("cut short")
        # A view or a trigger by the name of a table could do anything.
        if _schema_of(self._database) not in _own_schemas():
            raise ValueError("not the tables of an index")
        (said,) = ask("SELECT state FROM sources").fetchall()
        info = msgspec.convert(json.loads(said[0]), RunInfo, str_keys=True)
        checked_session(info.session)
        if info.counts.keys() != OUTCOMES.keys():
            raise ValueError("not the counts of an index")
        return info


def is_index(path: Path) -> bool:
    """Whether a file is a whole index of this version, as it was left. Raises OSError."""
    try:
        Index(path).close()
    except ValueError:
        return False
    return True


def open_index(files: OutputFiles) -> Index:
    """The current index of a run's journal; built or extended if it is not current. Raises
    UserError if there is no journal or it is damaged, and OSError.
    """
    try:
        fd = os.open(files.journal, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise UserError(
            f"{files.journal} is missing. Either {files.rows} is not the output of a run, or an "
            "early version of gymmesh without journals wrote it. In the second case, --resume "
            "creates the journal"
        ) from None
    try:
        older = False
        with contextlib.suppress(OSError, ValueError):
            found = Index(files.index)
            if _is_of(found.info, files, fd):
                # Rows that were damaged may have been restored since.
                if found.info.journal_bytes == os.fstat(fd).st_size and not found.info.damaged:
                    return found
                older = True
            found.close()
        return _build(files, fd, older=older)
    finally:
        os.close(fd)


def _is_of(info: RunInfo, files: OutputFiles, fd: int) -> bool:
    """Whether an index that says this is of the journal that is open, as far as it goes."""
    return info.digest == digest_of(fd, info.next[0]) and info.stem == files.stem


def _schema_of(database: sqlite3.Connection) -> frozenset[tuple[str, str, str, str | None]]:
    return frozenset(database.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"))


@cache
def _own_schemas() -> Sequence[frozenset[tuple[str, str, str, str | None]]]:
    """What an index has without the page's tables, and with them."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(TABLES + INDICES)
        bare = _schema_of(database)
        database.executescript(DETAILS)
        return bare, _schema_of(database)


def _build(files: OutputFiles, fd: int, *, older: bool) -> Index:
    """Make the index; `older`: from the one that is there."""
    keep = os.access(files.index.parent, os.W_OK)
    with _draft(files.index, keep) as draft:
        if older:
            try:
                shutil.copyfile(files.index, draft)
                unseal(draft)
            except OSError:
                older = False
        while True:
            try:
                _write(files, draft)
                break
            except sqlite3.DatabaseError as error:
                # A full disk and a damaged older index look alike: what is made anew tells.
                if not older:
                    raise OSError(0, f"the index cannot be written: {error}") from None
                older = False
                draft.write_bytes(b"")
        seal(draft)
        os.chmod(draft, os.fstat(fd).st_mode & 0o666)
        built = Index(draft)
        if keep:
            draft.replace(files.index)
        return built


def _write(files: OutputFiles, draft: Path) -> None:
    with closing(sqlite3.connect(draft, isolation_level=None)) as database:
        # A draft that a crash leaves behind is never read, so nothing needs to be rolled back.
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        writer = IndexWriter(database, [IndexSource(Path(files.rows.name), files)])
        while writer.step():
            pass


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
    outcome: str,
    current: int,
    boundary: str | None,
    superseded: str | None,
    ended_at: int,
    *place: int | None,
) -> tuple[Attempt, Place | None]:
    if outcome not in OUTCOMES.values():
        raise ValueError("an outcome of another kind")
    number, why = boundary_number(boundary), superseded or ""
    about = Attempt(attempt, outcome, bool(current), number, why, ended_at)
    return about, None if place[0] is None else msgspec.convert(place, Place)
