"""The shown rows: the columns kept of each, and the filters.

sources.py  the shown runs and files
summary.py  the parts of a row in the index (pure)
filters.py  which rollouts, in which order: parsed from a URL, with the SQL (pure)
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
