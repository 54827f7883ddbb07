"""The journal of a run: which outcomes are on disk, and where their rows are. See docs/journal.md.

Pure: `format` (ids, the log's bytes, the files' names), `state` (what the log amounts to), `moves`
(where rows are after a compaction). At the edge: `disk`, `row_files`, `log` (reading it), `journal`
(commits), `writer` (many appends, one commit), `compaction`, `index` (SQLite) and `reader`;
`foreign_files` looks at what was there before. Reading all rows: `places` (where the log says that
they are), `stored_rows` (each compared with its checksum), `following` (what is new, for a page
that is live) and `placed` (a file's rows, each with its place).
"""

from gymmesh_client.journal.compaction import compact_run
from gymmesh_client.journal.disk import Disk, OutputError
from gymmesh_client.journal.following import Batch, FileFollower, RunFollower
from gymmesh_client.journal.format.layout import OutputFiles
from gymmesh_client.journal.index.index import Attempt
from gymmesh_client.journal.index.seal import is_sealed, seal, sealed_size, unseal
from gymmesh_client.journal.log import first_session
from gymmesh_client.journal.placed import RowPlace, placed_rows, read_line
from gymmesh_client.journal.reader import RunReader, open_run

__all__ = [
    "Attempt",
    "Batch",
    "Disk",
    "FileFollower",
    "OutputError",
    "OutputFiles",
    "RowPlace",
    "RunFollower",
    "RunReader",
    "compact_run",
    "first_session",
    "is_sealed",
    "open_run",
    "placed_rows",
    "read_line",
    "seal",
    "sealed_size",
    "unseal",
]
