"""The journal of a run: which outcomes are on disk, and where their rows are. See docs/journal.md.

Pure: `format` (ids, the log's bytes, the files' names), `state` (what the log amounts to), `moves`
(where rows are after a compaction). At the edge: `disk`, `row_files`, `log` (reading it), `journal`
(commits), `writer` (many appends, one commit), `compaction`, `index` (SQLite) and `reader`;
`foreign_files` looks at what was there before.
"""

from gymmesh_client.journal.compaction import compact_run
from gymmesh_client.journal.disk import Disk, OutputError
from gymmesh_client.journal.format.layout import OutputFiles
from gymmesh_client.journal.index.index import Attempt
from gymmesh_client.journal.reader import RunReader, open_run

__all__ = [
    "Attempt",
    "Disk",
    "OutputError",
    "OutputFiles",
    "RunReader",
    "compact_run",
    "open_run",
]
