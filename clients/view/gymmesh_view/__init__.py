"""A local page that shows stored rollouts, and those of a run that goes on.

rows/          the rows: which there are, what is kept of each, which are chosen
index/         the index, kept up to date in a thread, and what it is asked
rollout/       one rollout as the page shows it
reading.py     the page's API as JSON; server.py serves it, bundle.py writes it down
vocabulary.py  the text of token ids, from a tokenizer.json
view.py        what gym-cli view does
static/        the page, built from clients/view/ui
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
