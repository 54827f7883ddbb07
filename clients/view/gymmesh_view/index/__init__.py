"""The index of what is shown, a SQLite file.

tables.py    its tables
indexing.py  fills the tables in a thread of its own
store.py     asks them
"""

from gymmesh_view.index.indexing import Indexer, index_path
from gymmesh_view.index.store import Store

__all__ = [
    "Indexer",
    "Store",
    "index_path",
]
