"""Keeps the index of what is shown up to date, in a thread of its own.

The index is a SQLite file in the user's cache folder, named after what is shown; GYMMESH_CACHE_DIR
is another folder. It is derived: delete it whenever you like. A checksum behind it, while nobody
writes it, shows whether it was changed, and then it is made anew. Only one process writes it, the
one that holds its lock; others that show the same only read it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import platformdirs

from gymmesh_client import UserError
from gymmesh_client.journal import (
    Batch,
    FileFollower,
    RunFollower,
    is_sealed,
    seal,
    sealed_size,
    unseal,
)
from gymmesh_view.index.tables import (
    TABLES,
    VERSION,
    Names,
    connect,
    delete_file,
    delete_row,
    insert,
)
from gymmesh_view.rows import Summary, ViewSource, labels, summary_of

_POLL_S: Final = 0.5
_OLD_S: Final = 30 * 86_400
_MOST_PROBLEMS: Final = 50
_FILE: Final = """
    INSERT INTO files (source, run, path) VALUES (?, ?, ?)
    ON CONFLICT (path) DO UPDATE SET path = path RETURNING id
"""


def index_path(sources: Sequence[ViewSource]) -> Path:
    """Where the index of some sources is."""
    own = os.environ.get("GYMMESH_CACHE_DIR")
    folder = (Path(own) if own else platformdirs.user_cache_path("gymmesh")) / "view"
    named = "\0".join(str(source.path.resolve()) for source in sources)  # numbered in this order
    return folder / f"{hashlib.sha256(named.encode('utf-8', 'surrogateescape')).hexdigest()}.sqlite"


class Indexer:
    """Writes the index of some sources and follows them; `path`: of the index."""

    def __init__(self, sources: Sequence[ViewSource], path: Path) -> None:
        self.sources = sources
        self.stopping = threading.Event()
        self._path = path
        self._thread: threading.Thread | None = None
        self._lock: int | None = None

    def prepare(self) -> None:
        """Make the index's file where it is missing or of another version. Raises UserError where
        it cannot be written.
        """
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _remove_old(self._path.parent)
            self._lock = _locked(self._path.with_suffix(".lock"))
            if self._lock is not None and not self._usable():
                _remove(self._path)
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
                with contextlib.closing(connect(self._path, write=True)) as database:
                    database.executescript(TABLES)
                    _put(database, "version", VERSION)
                    _put(database, "changes", 0)
                    _put(database, "progress", {"state": "indexing", "done": 0, "bytes": 0})
            os.utime(self._path)
        except (OSError, sqlite3.Error) as error:
            raise UserError(f"{self._path}: cannot be written: {error}") from None

    def start(self) -> None:
        """Begin to index and to follow, in a thread; nothing where another process does."""
        if self._lock is not None:
            self._thread = threading.Thread(target=self._run, name="view-index", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop; what was taken in stays. Idempotent."""
        self.stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._lock is not None:
            with contextlib.suppress(OSError, UserError, sqlite3.Error):
                self._seal()
            os.close(self._lock)
            self._lock = None

    def run_once(self) -> None:
        """Index all that there is now, in this thread. Raises UserError where something cannot be
        read or written.
        """
        if self._lock is None:
            raise UserError(f"{self._path}: another gym-cli view is at work in it")
        with contextlib.closing(connect(self._path, write=True)) as database:
            work = _Work(self, database)
            work.step()
            work.finish("ready")

    def _run(self) -> None:
        with contextlib.closing(connect(self._path, write=True)) as database:
            work = _Work(self, database)
            while not self.stopping.is_set():
                try:
                    work.step()
                    work.finish("ready")
                except (UserError, sqlite3.Error) as error:
                    said = str(error) if isinstance(error, UserError) else f"{self._path}: {error}"
                    # Another one, since this one knows names and places that were not kept.
                    work = _Work(self, database)
                    work.finish("stopped", said)
                self.stopping.wait(_POLL_S)

    def _seal(self) -> None:
        """Put a checksum behind the index, which nobody writes from now on."""
        with contextlib.closing(connect(self._path, write=True)) as database:
            database.execute("PRAGMA wal_checkpoint (TRUNCATE)")
        seal(self._path)

    def _usable(self) -> bool:
        """Whether the index that is there can be continued: it is of this version and as it was
        left, or was not left in order and SQLite finds nothing wrong with it.
        """
        try:
            left_in_order = is_sealed(self._path)
            if left_in_order:
                sealed_size(self._path)
                unseal(self._path)
            with contextlib.closing(connect(self._path, write=True)) as database:
                found = ("ok",)
                if not left_in_order:
                    found = database.execute("PRAGMA quick_check").fetchone()
                return found == ("ok",) and bool(get(database, "version") == VERSION)
        except (OSError, UserError, ValueError, sqlite3.Error):
            return False


class _Work:
    """One indexer's work, with its open index."""

    def __init__(self, indexer: Indexer, database: sqlite3.Connection) -> None:
        self._indexer = indexer
        self._database = database
        self._names = Names(database)
        self._next = int(get(database, "next") or 1)
        self._changes = int(get(database, "changes") or 0)
        self._file = cache(self._number_of)
        #: The first problems, and how many there are of each file.
        self._problems: list[tuple[str, str]] = [
            (path, said) for path, said in get(database, "problems") or []
        ]
        self._wrong = Counter[str](get(database, "wrong") or {})
        self._labels = labels([source.path for source in indexer.sources])
        self._followers = [self._follower(source) for source in indexer.sources]
        self._shown: Any = None

    def step(self) -> None:
        """Take in all that is new."""
        for number, follower in enumerate(self._followers):
            for batch in follower.batches():
                self._take(number, batch)
                if self._indexer.stopping.is_set():
                    return

    def finish(self, state: str, error: str = "") -> None:
        """Note what the index is now, where that is news."""
        with contextlib.suppress(sqlite3.Error), _transaction(self._database):
            self._progress(state, error)

    def _follower(self, source: ViewSource) -> FileFollower | RunFollower:
        state = get(self._database, f"source {source.path}") or {}
        if source.run is None:
            return FileFollower(source.path, state)
        return RunFollower(source.run, state)

    def _take(self, number: int, batch: Batch) -> None:
        source = self._indexer.sources[number]
        rows, problems = [], list(batch.problems)
        for path, placed in batch.rows:
            where = f"{path}: byte {placed.offset + placed.inner}"
            try:
                one: Summary = summary_of(placed.line, where)
            except UserError as error:
                problems.append((path, str(error)[:500]))
                continue
            place = placed[1:5] + placed[6:]
            rows.append((path, one, place))
        with _transaction(self._database):
            for path in batch.resets:
                delete_file(self._database, self._file(number, path))
                self._problems = [one for one in self._problems if one[0] != str(path)]
                del self._wrong[str(path)]
            self._note(problems)
            for path, offset, inner in batch.removed:
                delete_row(self._database, self._file(number, path), offset, inner)
            placed_rows = [
                (self._next + at, self._file(number, path), one, place)
                for at, (path, one, place) in enumerate(rows)
            ]
            insert(self._database, self._names, placed_rows)
            self._next += len(rows)
            self._changes += 1
            _put(self._database, "next", self._next)
            _put(self._database, "changes", self._changes)
            _put(self._database, "problems", self._problems)
            _put(self._database, "wrong", self._wrong)
            _put(self._database, f"source {source.path}", batch.state)
            self._progress("indexing", "")

    def _note(self, problems: Sequence[tuple[Path, str]]) -> None:
        """Count problems, and keep the first."""
        self._wrong.update(str(path) for path, _ in problems)
        room = _MOST_PROBLEMS - len(self._problems)
        self._problems += [(str(path), said) for path, said in problems[:room]]

    def _progress(self, state: str, error: str) -> None:
        sizes = [follower.size() for follower in self._followers]
        shown = {
            "state": state,
            "error": error,
            "done": sum(min(one) for one in sizes),
            "bytes": sum(size for _, size in sizes),
            "wrong": self._wrong.total(),
            "ended": [follower.ended for follower in self._followers],
        }
        if shown != self._shown:
            _put(self._database, "progress", shown)
            self._shown = shown

    def _number_of(self, source: int, path: Path) -> int:
        found = self._database.execute(_FILE, (source, self._labels[source], str(path)))
        return int(found.fetchone()[0])


def get(database: sqlite3.Connection, key: str) -> Any:
    """A value of the table `meta`; None where there is none."""
    found = database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if found is None else json.loads(found[0])


def _put(database: sqlite3.Connection, key: str, value: Any) -> None:
    database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))


@contextlib.contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All or nothing."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        yield


def _locked(path: Path) -> int | None:
    """A lock on a file, as a descriptor; None where another process has it."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_old(folder: Path) -> None:
    """Remove indexes that nobody has used for a month."""
    for path in folder.glob("*.sqlite"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _OLD_S:
                _remove(path)


def _remove(index: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        index.with_name(index.name + suffix).unlink(missing_ok=True)
