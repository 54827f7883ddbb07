"""An SQLite connection on which foreign queries can only read, and not for long.

Four fences: an authorizer that lets statements read and nothing else, limits of SQLite's own on
lengths and depths, a cap on its memory, and a clock that interrupts. A single step that takes
long in spite of them is ended with its process. The clock is the processor's, so that a busy
machine makes nobody's query too slow.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from gymmesh_resource.environments.sql.bounds import quoted

HEAP = 256 * 1024**2
"""Bytes that SQLite may hold in this process."""

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 8 * 1024**2,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1024**2,
    sqlite3.SQLITE_LIMIT_COLUMN: 500,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
# Operations of SQLite's machine between two looks at the clock: well under a millisecond.
_STEP = 2_000
_READING = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_PRAGMAS = frozenset(
    {
        "data_version",  # full-text tables look at it
        "foreign_key_list",
        "index_info",
        "index_list",
        "index_xinfo",
        "table_info",
        "table_list",
        "table_xinfo",
    }
)
# In builds that have them they reach outside of the database.
_FUNCTIONS = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"})
_NEVER = frozenset({sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH})


def open_file(path: Path) -> sqlite3.Connection:
    """A database file, to be read. Raises sqlite3.Error."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)


def open_setup(script: str, seconds: float) -> bytes:
    """The database that a script makes, as bytes, none for an empty one. Raises sqlite3.Error.

    The script writes into memory only: it cannot attach files either.
    """
    with closing(sqlite3.connect(":memory:")) as connection:
        _prepare(connection)
        connection.set_authorizer(_allow_writing)
        with _clock(connection, seconds):
            connection.executescript(script)
            connection.commit()
        connection.set_authorizer(None)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        return connection.serialize() if pages else b""


@contextmanager
def guarded(connection: sqlite3.Connection, seconds: float) -> Iterator[sqlite3.Connection]:
    """The connection behind its fences; closed at the end."""
    try:
        _prepare(connection)
        _open_virtual_tables(connection)
        connection.execute("PRAGMA query_only = ON")
        connection.set_authorizer(_allow_reading)
        with _clock(connection, seconds):
            yield connection
    finally:
        connection.close()


def _open_virtual_tables(connection: sqlite3.Connection) -> None:
    """Open full-text tables and the like now: declaring their columns counts as writing."""
    names = connection.execute(
        "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%'"
    ).fetchall()
    for (name,) in names:
        connection.execute(f"SELECT * FROM {quoted(name)} LIMIT 0").fetchall()


def _prepare(connection: sqlite3.Connection) -> None:
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    for limit, value in _LIMITS.items():
        connection.setlimit(limit, value)
    connection.execute(f"PRAGMA hard_heap_limit = {HEAP}")
    # Sorts and temporary indexes count against the memory, and never fill a disk.
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA trusted_schema = OFF")


@contextmanager
def _clock(connection: sqlite3.Connection, seconds: float) -> Iterator[None]:
    end = time.process_time() + seconds
    connection.set_progress_handler(lambda: int(time.process_time() > end), _STEP)
    try:
        yield
    finally:
        connection.set_progress_handler(None, _STEP)


def _allow_reading(
    action: int, first: str | None, second: str | None, database: str | None, source: str | None
) -> int:
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_PRAGMA:
        return sqlite3.SQLITE_OK if (first or "").lower() in _PRAGMAS else sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def _allow_writing(
    action: int, first: str | None, second: str | None, database: str | None, source: str | None
) -> int:
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_PRAGMA:
        # Settings that dumps bring along have no meaning here, and no effect.
        return sqlite3.SQLITE_OK if first == "foreign_keys" else sqlite3.SQLITE_IGNORE
    return sqlite3.SQLITE_DENY if action in _NEVER else sqlite3.SQLITE_OK
