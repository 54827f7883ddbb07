"""A local page that shows stored rollouts and runs in progress.

rows/          the rows: their sources, the columns kept of each, the filters index/         the
index, updated in a thread, and its queries rollout/       one rollout, for the page reading.py
the page's API as JSON; server.py serves it, bundle.py writes it to files vocabulary.py  the text of
token ids, from a tokenizer.json view.py        the command gym-cli view static/        the page,
built from clients/view/ui
"""

from gymmesh_view.bundle import BundleSummary, write_bundle
from gymmesh_view.rows import (
    Filters,
    Found,
    Sort,
    ViewSource,
    find_sources,
    parse_filters,
    parse_sort,
)
from gymmesh_view.view import outputs_of_runs, serve, viewing

__all__ = [
    "BundleSummary",
    "Filters",
    "Found",
    "Sort",
    "ViewSource",
    "find_sources",
    "outputs_of_runs",
    "parse_filters",
    "parse_sort",
    "serve",
    "viewing",
    "write_bundle",
]
