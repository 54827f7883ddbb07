"""The index of what is shown, a SQLite file; gymmesh_client.index keeps it.

indexing.py    keeps it up to date in a thread of its own
details.py     fills the page's tables of it
store.py       asks them
bins.py        the bins of its histograms
connection.py  opens it
"""

from gymmesh_view.index.indexing import Indexer, index_path, own_index
from gymmesh_view.index.store import Store

__all__ = [
    "Indexer",
    "Store",
    "index_path",
    "own_index",
]
