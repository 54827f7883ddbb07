"""What an export knows of rollouts until it has read them all: on disk, so that memory is flat.

The best rollouts of a task, and its pairs, can be told only when all its rollouts are there, and
these stand anywhere in a file. SQLite keeps them together by task; the file goes when it is closed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
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
        content BLOB NOT NULL
    );
"""


class Spool:
    """Rollouts by task. path: a file that is made anew, and removed in the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        self._base = sqlite3.connect(path, isolation_level=None)
        self._base.executescript(_TABLES)
        self._base.execute("BEGIN")

    def task(self, task_id: str) -> tuple[int, bool]:
        """A task's number, and whether it had none yet."""
        # Text with an unpaired surrogate is none for SQLite.
        name = task_id.encode("utf-8", "surrogatepass")
        found = self._base.execute("SELECT number FROM tasks WHERE task_id = ?", (name,)).fetchone()
        if found is not None:
            return int(found[0]), False
        made = self._base.execute("INSERT INTO tasks (task_id) VALUES (?)", (name,)).lastrowid
        assert made is not None
        return made, True

    def add(self, task: int, reward: float, content: bytes) -> None:
        """Keep a rollout's content. task: its number."""
        self._base.execute(
            "INSERT INTO rollouts (task, reward, content) VALUES (?, ?, ?)",
            (task, reward, content),
        )

    def tasks(self) -> Iterator[list[tuple[float, int]]]:
        """The rollouts of each task: reward and number; tasks and rollouts in their order."""
        self._base.execute("CREATE INDEX IF NOT EXISTS by_task ON rollouts (task, number, reward)")
        found: list[tuple[float, int]] = []
        last = None
        for task, number, reward in self._base.execute(
            "SELECT task, number, reward FROM rollouts ORDER BY task, number"
        ):
            if task != last and found:
                yield found
                found = []
            last = task
            found.append((reward, number))
        if found:
            yield found

    def content(self, number: int) -> bytes:
        """What was kept of a rollout."""
        row = self._base.execute("SELECT content FROM rollouts WHERE number = ?", (number,))
        return bytes(row.fetchone()[0])

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._base.close()
        self._path.unlink(missing_ok=True)
