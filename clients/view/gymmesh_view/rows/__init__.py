"""The rows that are shown: what is kept of each, and which are chosen.

sources.py  what is to be shown: runs and files
summary.py  what the index keeps of a row (pure)
filters.py  which rollouts, in which order: what a URL says, and the SQL for it (pure)
"""

from gymmesh_view.rows.filters import (
    ONE_OF,
    SETS,
    Filters,
    Sort,
    order_of,
    parse_filters,
    parse_sort,
    where_of,
)
from gymmesh_view.rows.sources import Found, ViewSource, find_sources, labels
from gymmesh_view.rows.summary import Json, Summary, clean, summary_of, text_of, texts_of

__all__ = [
    "ONE_OF",
    "SETS",
    "Filters",
    "Found",
    "Json",
    "Sort",
    "Summary",
    "ViewSource",
    "clean",
    "find_sources",
    "labels",
    "order_of",
    "parse_filters",
    "parse_sort",
    "summary_of",
    "text_of",
    "texts_of",
    "where_of",
]
