"""The index of a run in SQLite: attempts, places and names, and what the page searches.

index          opens an index for look-ups; makes it, or continues a stale one
writer         keeps one up to date with its sources
run_attempts   a run, by its log; file_attempts: a file of rows; rows: what a row says (pure)
tables         the one schema
seal           a checksum behind the file
run_reader     a run: all its rows, or one by its id
"""

from gymmesh_client.index.index import Attempt, Index, is_index, open_index
from gymmesh_client.index.run_reader import RunReader, open_run
from gymmesh_client.index.seal import is_sealed, seal, sealed_size, unseal
from gymmesh_client.index.tables import (
    APPLICATION_ID,
    INDEX_BEGIN,
    INDEX_VERSION,
    get_meta,
    put_meta,
)
from gymmesh_client.index.writer import IndexSource, IndexWriter, UndescribedRow

__all__ = [
    "APPLICATION_ID",
    "INDEX_BEGIN",
    "INDEX_VERSION",
    "Attempt",
    "Index",
    "IndexSource",
    "IndexWriter",
    "RunReader",
    "UndescribedRow",
    "get_meta",
    "is_index",
    "is_sealed",
    "open_index",
    "open_run",
    "put_meta",
    "seal",
    "sealed_size",
    "unseal",
]
