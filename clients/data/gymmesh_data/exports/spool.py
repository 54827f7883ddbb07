"""Keeps rollouts on disk until an export has read them all, so that memory stays constant.

The best rollouts of a task, and its pairs, are known only after all its rollouts have been read,
and these may be anywhere in a file. SQLite stores them by task. The file is deleted when it is
closed.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

_TABLES: Final = """
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    CREATE TABLE tasks (number INTEGER PRIMARY KEY, task_id BLOB NOT NULL UNIQUE);
    CREATE TABLE rollouts (
        number INTEGER PRIMARY KEY,
        task INTEGER NOT NULL,
        reward REAL NOT NULL,
        place INTEGER NOT NULL,
        size INTEGER NOT NULL
    );
"""
_TASK: Final = """
    INSERT INTO tasks (task_id) VALUES (?)
    ON CONFLICT (task_id) DO UPDATE SET task_id = task_id RETURNING number
"""
_BUFFER_BYTES: Final = 64 * 1024
# Tasks whose numbers are in memory: some 10 MB.
_MOST_KNOWN: Final = 100_000


class Spool:
    """Rollouts by task. path: a temporary file, created new and removed at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        self._base = sqlite3.connect(path, isolation_level=None)
        self._base.executescript(_TABLES)
        self._base.execute("BEGIN")
        # Closed by `__exit__`.
        self._contents = tempfile.TemporaryFile(dir=path.parent, buffering=_BUFFER_BYTES)  # noqa: SIM115
        self._size = 0
        #: The number of a task: 1, 2, 3 … in the order in which they first came.
        self.number = lru_cache(_MOST_KNOWN)(self._number)

    def _number(self, task_id: str) -> int:
        # Text with an unpaired surrogate is none for SQLite.
        name = task_id.encode("utf-8", "surrogatepass")
        return int(self._base.execute(_TASK, (name,)).fetchone()[0])

    def add(self, task: int, reward: float, content: bytes) -> None:
        """Keep a rollout's content. task: the number of its task."""
        self._base.execute(
            "INSERT INTO rollouts (task, reward, place, size) VALUES (?, ?, ?, ?)",
            (task, reward, self._size, len(content)),
        )
        self._contents.write(content)
        self._size += len(content)

    def tasks(self) -> Iterator[list[tuple[float, int]]]:
        """The rollouts of each task: reward and number; tasks and rollouts in their order."""
        self._contents.flush()
        self._base.execute("CREATE INDEX IF NOT EXISTS by_task ON rollouts (task, number, reward)")
        rows = self._base.execute("SELECT task, number, reward FROM rollouts ORDER BY task, number")
        for _, rollouts in groupby(rows, key=itemgetter(0)):
            yield [(reward, number) for _, number, reward in rollouts]

    def content(self, number: int) -> bytes:
        """The kept content of a rollout; call this only after `tasks` has begun."""
        found = self._base.execute("SELECT place, size FROM rollouts WHERE number = ?", (number,))
        place, size = found.fetchone()
        return os.pread(self._contents.fileno(), size, place)

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._contents.close()
        self._base.close()
        self._path.unlink(missing_ok=True)
