"""Which actors spoke in the rollouts of a run, as its trace says it while it grows. Rows that an
earlier version wrote have the root agent's conversation alone.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from gymmesh_client import OutputFiles, UserError
from gymmesh_client.journal.log import mapped
from gymmesh_client.journal.row_files import load_zstandard
from gymmesh_client.traces.blocks import decode_events, scan_blocks
from gymmesh_view.index.tables import Names
from gymmesh_view.rows.summary import clean

# A writer's block holds one attempt at least, and closes at a quarter of a MiB.
_MOST_IN_BLOCK: Final = 1 << 31


class Spoken(NamedTuple):
    """The actors of an attempt that had some beside the root agent."""

    rollout_id: str
    attempt: int
    actors: tuple[str, ...]


def spoken_in(rows: Path, position: int) -> Iterator[tuple[list[Spoken], int]]:
    """What whole blocks of a run's trace say from a byte on, block by block, each with the byte
    behind it. A block that is damaged says nothing; where there is no trace, there is none.
    """
    try:
        zstandard = load_zstandard()
        fd = os.open(OutputFiles(rows).trace, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, UserError):
        return
    try:
        if os.fstat(fd).st_size <= position:
            return
        decompressor = zstandard.ZstdDecompressor()
        with mapped(fd) as data:
            for block in scan_blocks(data, position):
                try:
                    frame = data[block.start : block.end]
                    known = 0 <= zstandard.frame_content_size(frame) <= _MOST_IN_BLOCK
                    found = list(_spoken(decompressor.decompress(frame))) if known else []
                    yield found, block.end
                except (zstandard.ZstdError, MemoryError, ValueError, DecodeError):
                    yield [], block.end
    finally:
        os.close(fd)


def _spoken(content: bytes) -> Iterator[Spoken]:
    found: dict[tuple[str, int], set[str]] = {}
    for event in decode_events(content):
        actor = event.model_call_completed.actor
        if actor:
            found.setdefault((event.rollout_id, event.attempt), set()).add(clean(actor))
    for (rollout_id, attempt), actors in found.items():
        yield Spoken(rollout_id, attempt, tuple(sorted(actors)))


def note(database: sqlite3.Connection, names: Names, source: int, found: Sequence[Spoken]) -> None:
    """Keep what was found, for rows that are there and rows that are still to come."""
    database.executemany(
        "INSERT OR REPLACE INTO spoken VALUES (?, ?, ?, ?, 1)",
        [
            (source, one.rollout_id, one.attempt, names.set_number("actor", one.actors))
            for one in found
        ],
    )


def forget(database: sqlite3.Connection, source: int) -> None:
    """Take out what was kept of a source."""
    database.execute("DELETE FROM spoken WHERE source = ?", (source,))


def join(database: sqlite3.Connection, source: int) -> bool:
    """Put the actors to their rows, as far as these are there; whether there were any."""
    waiting = database.execute(
        "SELECT r.id, s.actors, s.rollout_id, s.attempt FROM spoken s "
        "JOIN places p ON p.rollout_id = s.rollout_id AND p.rollout_id != '' "
        "JOIN files f ON f.id = p.file AND f.source = s.source "
        "JOIN rollouts r ON r.id = p.id AND r.attempt = s.attempt "
        "WHERE s.waits AND s.source = ?",
        (source,),
    ).fetchall()
    database.executemany(
        "UPDATE rollouts SET actors = ? WHERE id = ?",
        [(actors, row) for row, actors, *_ in waiting],
    )
    database.executemany(
        "UPDATE spoken SET waits = 0 WHERE source = ? AND rollout_id = ? AND attempt = ?",
        [(source, rollout_id, attempt) for *_, rollout_id, attempt in waiting],
    )
    return bool(waiting)
