"""The journal of a run: which outcomes are on disk, and where their rows are. See docs/journal.md.

Pure: `format` (ids, the log's bytes, the files' names), `state` (what the log amounts to), `moves`
(where rows are after a compaction). At the edge: `disk`, `row_files`, `log` (reading it), `journal`
(commits), `writer` (many appends, one commit), `metrics` (of both), `compaction`, `index` (SQLite;
its `seal` is a checksum behind the file) and `reader`; `foreign_files` looks at what was there
before. Reading all rows: `places` (where the log says that
they are), `stored_rows` (each compared with its checksum), `following` (what is new, for a page
that is live) and `placed` (a file's rows, each with its place).
"""

from gymmesh_client.journal.compaction import compact, compact_run
from gymmesh_client.journal.disk import Disk, OutputError, cannot_write, existing_locked
from gymmesh_client.journal.foreign_files import refuse_foreign_files, set_aside_unreadable
from gymmesh_client.journal.format.keys import KEY_BYTES, rollout_id, rollout_ids, rollout_key
from gymmesh_client.journal.format.layout import OutputFiles
from gymmesh_client.journal.format.records import (
    COMPLETED,
    FAILED,
    FAILURES,
    FORMAT,
    RETRY,
    ROWS,
    AttemptFailed,
    CurrentOutcome,
    Place,
    Released,
    Reserved,
    RunEnded,
    RunOpened,
    is_run_id,
)
from gymmesh_client.journal.index.index import Attempt, is_index, open_index
from gymmesh_client.journal.index.seal import is_sealed, seal, sealed_size, unseal
from gymmesh_client.journal.index.tables import VERSION as INDEX_VERSION
from gymmesh_client.journal.index.tables import get as get_meta
from gymmesh_client.journal.index.tables import put as put_meta
from gymmesh_client.journal.index.writer import IndexSource, IndexWriter, UndescribedRow
from gymmesh_client.journal.journal import Journal, NewOutcome
from gymmesh_client.journal.log import first_session, latest_session, mapped
from gymmesh_client.journal.placed import RowPlace, placed_rows, read_line
from gymmesh_client.journal.reader import RunReader, open_run
from gymmesh_client.journal.row_files import DamagedRow
from gymmesh_client.journal.stored_rows import (
    damaged_row,
    every_row,
    line_number,
    stored_rows,
)
from gymmesh_client.journal.writer import COMMIT_DELAY_S, JournalWriter
from gymmesh_client.journal.zstd import Zstd, load_zstandard

__all__ = [
    "COMMIT_DELAY_S",
    "COMPLETED",
    "FAILED",
    "FAILURES",
    "FORMAT",
    "INDEX_VERSION",
    "KEY_BYTES",
    "RETRY",
    "ROWS",
    "Attempt",
    "AttemptFailed",
    "CurrentOutcome",
    "DamagedRow",
    "Disk",
    "IndexSource",
    "IndexWriter",
    "Journal",
    "JournalWriter",
    "NewOutcome",
    "OutputError",
    "OutputFiles",
    "Place",
    "Released",
    "Reserved",
    "RowPlace",
    "RunEnded",
    "RunOpened",
    "RunReader",
    "UndescribedRow",
    "Zstd",
    "cannot_write",
    "compact",
    "compact_run",
    "damaged_row",
    "every_row",
    "existing_locked",
    "first_session",
    "get_meta",
    "is_index",
    "is_run_id",
    "is_sealed",
    "latest_session",
    "line_number",
    "load_zstandard",
    "mapped",
    "open_index",
    "open_run",
    "placed_rows",
    "put_meta",
    "read_line",
    "refuse_foreign_files",
    "rollout_id",
    "rollout_ids",
    "rollout_key",
    "seal",
    "sealed_size",
    "set_aside_unreadable",
    "stored_rows",
    "unseal",
]
