"""Keeps the index of the shown rollouts up to date, in a separate thread.

For one run, the page copies the run's index to the user's cache folder (GYMMESH_CACHE_DIR overrides
it), extends the copy with its own tables, and replaces the run's index with it when it closes. The
index of several runs, or of files without a journal, stays in that folder, under a name derived
from the sources. An index that nobody writes has a checksum at its end; if the checksum does not
match, the index is rebuilt. Only the process that holds the lock writes an index. Other processes
with the same sources only read it, and one of them takes over when the writer ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import platformdirs

from gymmesh_client import UserError
from gymmesh_client.index import (
    INDEX_VERSION,
    IndexSource,
    IndexWriter,
    get_meta,
    is_index,
    is_sealed,
    put_meta,
    seal,
    sealed_size,
    unseal,
)
from gymmesh_view.index.connection import connect
from gymmesh_view.index.details import PageDetails
from gymmesh_view.rows import ViewSource, labels

_POLL_S: Final = 0.5
_OLD_S: Final = 30 * 86_400
# What an index raises that another program wrote, or that is damaged.
_DAMAGE: Final = (sqlite3.Error, msgspec.ValidationError, AttributeError, KeyError, TypeError)


def index_path(sources: Sequence[ViewSource]) -> Path:
    """The place of the index of some sources while it is written."""
    own = os.environ.get("GYMMESH_CACHE_DIR")
    folder = (Path(own) if own else platformdirs.user_cache_path("gymmesh")) / "view"
    named = "\0".join(str(source.path.resolve()) for source in sources)  # numbered in this order
    return folder / f"{hashlib.sha256(named.encode('utf-8', 'surrogateescape')).hexdigest()}.sqlite"


def own_index(sources: Sequence[ViewSource]) -> Path | None:
    """The index beside the run, if exactly one run is shown and its index can be written. Else
    None.
    """
    if len(sources) != 1 or sources[0].run is None:
        return None
    index = sources[0].run.index
    return index if os.access(index.parent, os.W_OK) else None


class Indexer:
    """Writes the index of some sources and follows the sources.

    Args:
        path: the file of the index while it is written.
        home: the file of the index when no process writes it. None: the same file.
    """

    def __init__(self, sources: Sequence[ViewSource], path: Path, home: Path | None = None) -> None:
        self.sources = sources
        self.stopping = threading.Event()
        self._path = path
        self._home = home
        self._thread: threading.Thread | None = None
        self._lock: int | None = None

    def prepare(self) -> None:
        """Create the index's file if it is missing or has another version. Raises UserError if it
        cannot be written.
        """
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _remove_old(self._path.parent)
            if self._lock_index():
                os.utime(self._path)
        except (OSError, sqlite3.Error) as error:
            raise UserError(f"{self._path}: cannot be written: {error}") from None

    def start(self) -> None:
        """Begin to index and to follow the sources, in a thread. If another process writes the
        index, begin when that process ends.
        """
        self._thread = threading.Thread(target=self._run, name="view-index", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop. Rows that were indexed stay in the index. Idempotent."""
        self.stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._lock is not None:
            with contextlib.suppress(OSError, UserError, sqlite3.Error):
                self._seal()
                if self._home is not None:
                    _bring(self._path, self._home)
            os.close(self._lock)
            self._lock = None

    def run_once(self) -> None:
        """Index all present rows, in this thread. Raises UserError if a file cannot be read or
        written.
        """
        if self._lock is None:
            raise UserError(
                f"another gym-cli view is writing to {self._path}. Close the other gym-cli view "
                "and try again"
            )
        try:
            with contextlib.closing(connect(self._path, write=True)) as database:
                work = _Work(self._writer(database), database)
                while work.step():
                    pass
                work.finish("ready")
        except sqlite3.Error as error:
            raise UserError(f"{self._path}: cannot be written: {error}") from None

    def _lock_index(self) -> bool:
        """Become the process that writes the index, where no other is, and make it ready for that.
        Raises OSError, UserError and sqlite3.Error.
        """
        lock = _locked(self._path.with_suffix(".lock"))
        if lock is None:
            return False
        try:
            if not self._is_usable():
                self._begin()
            with contextlib.closing(connect(self._path, write=True)) as database:
                self._prepare(database)
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock
        return True

    def _run(self) -> None:
        while self._lock is None:
            if self.stopping.wait(_POLL_S):
                return
            with contextlib.suppress(OSError, UserError, sqlite3.Error):
                self._lock_index()
        with contextlib.closing(connect(self._path, write=True)) as database:
            work: _Work | None = None
            while not self.stopping.is_set():
                try:
                    work = work or _Work(self._writer(database), database)
                    while work.step() and not self.stopping.is_set():
                        pass
                    work.finish("ready")
                except (UserError, sqlite3.Error) as error:
                    said = str(error) if isinstance(error, UserError) else f"{self._path}: {error}"
                    # Another one, since this one knows names and places that were not kept.
                    work = self._work_after(said, database)
                self.stopping.wait(_POLL_S)

    def _work_after(self, error: str, database: sqlite3.Connection) -> _Work | None:
        """What to work on with after an error, which the page then shows; None while the index
        cannot be written, as on a full disk.
        """
        try:
            work = _Work(self._writer(database), database)
        except sqlite3.Error:
            return None
        work.finish("stopped", error)
        return work

    def _writer(self, database: sqlite3.Connection) -> IndexWriter:
        called = labels([source.path for source in self.sources])
        sources = [
            IndexSource(source.path, source.run, label)
            for source, label in zip(self.sources, called, strict=True)
        ]
        return IndexWriter(database, sources, PageDetails())

    def _prepare(self, database: sqlite3.Connection) -> None:
        """The tables, for the page to read from now on."""
        try:
            self._writer(database)
        except _DAMAGE:
            database.close()
            self._make()
            with contextlib.closing(connect(self._path, write=True)) as made:
                self._writer(made)

    def _begin(self) -> None:
        """Begin with the run's own index, or with nothing."""
        self._make()
        if self._home is None:
            return
        try:
            if is_index(self._home):
                shutil.copyfile(self._home, self._path)
                unseal(self._path)
        except OSError:
            self._make()

    def _make(self) -> None:
        _remove(self._path)
        os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    def _seal(self) -> None:
        """Put a checksum behind the index, which nobody writes from now on."""
        with contextlib.closing(connect(self._path, write=True)) as database:
            database.execute("PRAGMA wal_checkpoint (TRUNCATE)")
            # Else it could not be read where its folder cannot be written.
            database.execute("PRAGMA journal_mode = DELETE")
        seal(self._path)

    def _is_usable(self) -> bool:
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
                version = database.execute("PRAGMA user_version").fetchone()
                return found == ("ok",) and version == (INDEX_VERSION,)
        except (OSError, UserError, ValueError, sqlite3.Error):
            return False


class _Work:
    """One indexer's work, with its open index."""

    def __init__(self, writer: IndexWriter, database: sqlite3.Connection) -> None:
        self._writer = writer
        self._database = database
        self._shown: Any = None

    def step(self) -> bool:
        """Take in some of what is new; whether there was more."""
        more = self._writer.step()
        if more:
            self.finish("indexing")
        return more

    def finish(self, state: str, error: str = "") -> None:
        """Note what the index is now, where that is news."""
        done, size = self._writer.size()
        shown = {
            "state": state,
            "error": error,
            "done": done,
            "bytes": size,
            "ended": self._writer.ended(),
        }
        if shown != self._shown:
            with contextlib.suppress(sqlite3.Error):
                put_meta(self._database, "progress", shown)
                self._shown = shown


def progress_of(database: sqlite3.Connection) -> dict[str, Any]:
    """What `_Work.finish` noted last."""
    found: dict[str, Any] = get_meta(database, "progress") or {
        "state": "indexing",
        "error": "",
        "done": 0,
        "bytes": 0,
        "ended": None,
    }
    return found


def _bring(index: Path, home: Path) -> None:
    """Put an index that is sealed in its place at home, at once. Raises OSError."""
    try:
        os.chmod(index, home.with_suffix(".journal").stat().st_mode & 0o666)
        index.replace(home)
    except OSError:  # on another file system
        number, name = tempfile.mkstemp(dir=home.parent, prefix=home.name + ".")
        os.close(number)
        draft = Path(name)
        try:
            shutil.copyfile(index, draft)
            shutil.copymode(index, draft)
            draft.replace(home)
        finally:
            draft.unlink(missing_ok=True)
        _remove(index)


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
