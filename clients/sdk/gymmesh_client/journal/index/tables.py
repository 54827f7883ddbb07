"""The tables of the index, as docs/journal.md describes them for anyone's SQL."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gymmesh_client.journal.format.records import Place, Whole
from gymmesh_client.journal.state import RunState

INDEX_BEGIN: Final = b"SQLite format 3\0"
"""How every SQLite file begins."""
APPLICATION_ID: Final = 0x474D5849  # "GMXI": tells the index from anyone else's database
VERSION: Final = 3
"""Of the tables; an index of another version is made anew."""

TABLES: Final = """
    CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE attempts (
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
        damaged INTEGER NOT NULL DEFAULT 0
    );
"""
# Made after the attempts are in, which is faster than keeping them up to date meanwhile. The first
# are those that superseding and moving rows needs.
KEY_INDICES: Final = """
    CREATE INDEX IF NOT EXISTS attempts_key ON attempts (rollout_key);
    CREATE INDEX IF NOT EXISTS attempts_file ON attempts (row_kind, row_shard);
"""
INDICES: Final = f"""
    {KEY_INDICES}
    CREATE INDEX IF NOT EXISTS attempts_task ON attempts (task_id, repeat);
    CREATE INDEX IF NOT EXISTS attempts_environment ON attempts (environment, outcome, reward);
"""


class RunInfo(msgspec.Struct, frozen=True):
    """The table `run`: what the journal says of the run as a whole, and which journal it is."""

    session: dict[str, Any]
    ended: dict[str, Any] | None
    counts: dict[int, Whole]  # current outcomes, by status
    ends: list[tuple[Whole, Whole, Whole]]  # kind, shard and bytes of each row file
    superseded: list[Place]  # of rows that still stand in their files
    compacted: list[tuple[Whole, Whole, Whole]]  # kind, shard, number of the latest compaction
    next: tuple[Whole, Whole]  # where in the journal to go on, and the commit's number
    journal_bytes: Whole  # how much of the journal was read
    digest: str  # of that journal
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
