"""The tables of an index, as docs/reference/journal.md describes them for anyone's SQL.

`attempts` always exists. The page of gym-cli view filters, sorts and searches by the tables of
DETAILS. They cost more than everything else, and are built when the page asks for them.

The table `rollouts` is narrow, for filters and sorts read all of it: names are numbers into
`names`, and the sets of a rollout's tags, tools and actors are numbers into `sets`. `listed` has
the values that only the rows on the screen need.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any, Final

import msgspec

from gymmesh_client.log import RunState
from gymmesh_client.log_records import Place, Whole

INDEX_BEGIN: Final = b"SQLite format 3\0"
"""How every SQLite file begins."""
APPLICATION_ID: Final = 0x474D5849  # "GMXI": tells the index from anyone else's database
INDEX_VERSION: Final = 7
"""Of all tables and of what is in them; an index of another version is made anew."""

TABLES: Final = """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE sources (
        id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, label TEXT NOT NULL, state TEXT
    );
    CREATE TABLE attempts (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        source INTEGER NOT NULL,
        rollout_id TEXT,
        attempt INTEGER NOT NULL,
        task_id TEXT,
        repeat INTEGER,
        environment TEXT,
        outcome TEXT NOT NULL,
        current INTEGER NOT NULL,
        superseded TEXT,
        boundary TEXT,
        reason TEXT,
        reward REAL,
        tokens INTEGER,
        program TEXT,
        program_version TEXT,
        row_file TEXT,
        row_offset INTEGER,
        row_bytes INTEGER,
        ended_at INTEGER NOT NULL,
        rollout_key BLOB NOT NULL,
        row_kind INTEGER,
        row_shard INTEGER,
        row_inner INTEGER,
        row_length INTEGER,
        row_crc INTEGER,
        damaged INTEGER NOT NULL DEFAULT 0,
        described INTEGER NOT NULL DEFAULT 0
    );
"""
# Made after the attempts are in, which is faster than keeping them up to date meanwhile. The first
# are those that superseding and moving rows needs.
KEY_INDICES: Final = """
    CREATE INDEX IF NOT EXISTS attempts_key ON attempts (rollout_key);
    CREATE INDEX IF NOT EXISTS attempts_file ON attempts (source, row_kind, row_shard);
"""
INDICES: Final = f"""
    {KEY_INDICES}
    CREATE INDEX IF NOT EXISTS attempts_task ON attempts (task_id, repeat);
    CREATE INDEX IF NOT EXISTS attempts_environment ON attempts (environment, outcome, reward);
    CREATE INDEX IF NOT EXISTS attempts_damaged ON attempts (id) WHERE damaged = 1;
    CREATE INDEX IF NOT EXISTS attempts_unnamed ON attempts (id)
        WHERE rollout_id IS NULL AND row_kind IS NULL;
"""
# The columns of `sets` are in the order of its key: else SQLite's quick_check of version 3.40 takes
# its numbers for NULL.
DETAILS: Final = """
    CREATE INDEX IF NOT EXISTS attempts_place ON attempts (source, row_offset);
    CREATE INDEX IF NOT EXISTS attempts_undescribed ON attempts (id)
        WHERE described = 0 AND current = 1 AND damaged = 0 AND row_kind IS NOT NULL;
    CREATE TABLE IF NOT EXISTS names (
        id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, UNIQUE (kind, name)
    );
    CREATE TABLE IF NOT EXISTS sets (
        name INTEGER NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (name, id)
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS sets_id ON sets (id);
    CREATE TABLE IF NOT EXISTS rollouts (
        id INTEGER PRIMARY KEY,
        source INTEGER, outcome INTEGER, environment INTEGER, agent INTEGER, model INTEGER,
        task INTEGER, repeat INTEGER, attempt INTEGER, reward REAL, verdict INTEGER, stop INTEGER,
        boundary INTEGER, cause INTEGER, turns INTEGER, tool_calls INTEGER, input_tokens INTEGER,
        output_tokens INTEGER, duration_us INTEGER, started_at REAL, flags INTEGER, tags INTEGER,
        tools INTEGER, actors INTEGER
    );
    CREATE INDEX IF NOT EXISTS rollouts_task ON rollouts (task);
    CREATE TABLE IF NOT EXISTS listed (
        id INTEGER PRIMARY KEY, rollout_id TEXT NOT NULL, title TEXT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS listed_rollout ON listed (rollout_id) WHERE rollout_id != '';
    CREATE TABLE IF NOT EXISTS problems (
        id INTEGER PRIMARY KEY, source INTEGER NOT NULL, problem TEXT NOT NULL
    );
    CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (body, content = '', detail = none);
"""
# Of these tables, those with a row for a rollout that is shown. What is in `words` of one that no
# longer is stays, and names nothing: the ids of attempts are never used again (AUTOINCREMENT).
OF_ROLLOUTS: Final = ("rollouts", "listed", "problems")


class RunInfo(msgspec.Struct, frozen=True):
    """A source's `state`, of a run: what its journal says of it as a whole, and which journal it
    is.
    """

    session: dict[str, Any]
    ended: dict[str, Any] | None
    counts: dict[int, Whole]  # current outcomes, by status
    ends: list[tuple[Whole, Whole, Whole]]  # kind, shard and bytes of each row file
    superseded: list[Place]  # of rows that still stand in their files
    compacted: list[tuple[Whole, Whole, Whole]]  # kind, shard, number of the latest compaction
    next: tuple[Whole, Whole]  # where in the journal to read on, and the commit's number
    journal_bytes: Whole  # how long the journal was
    digest: str  # of that journal up to there
    stem: str  # what the run's files are called
    damaged: Whole  # current rows that were changed after they were written

    def state(self) -> RunState:
        """The journal's state, but for what it says of each rollout."""
        return RunState(
            self.session,
            self.ended,
            self.counts,
            {(kind, shard): end for kind, shard, end in self.ends},
            superseded=list(self.superseded),
            compacted={(kind, shard): number for kind, shard, number in self.compacted},
        )


def get_meta(database: sqlite3.Connection, key: str) -> Any:
    """A value of the table `meta`; None where there is none."""
    found = database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if found is None else json.loads(found[0])


def put_meta(database: sqlite3.Connection, key: str, value: Any) -> None:
    """Set a value of the table `meta`."""
    database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))


def run_all(database: sqlite3.Connection, statements: str) -> None:
    """Execute statements that have no semicolon in them, within the transaction that is open."""
    for statement in statements.split(";"):
        if statement.strip():
            database.execute(statement)
