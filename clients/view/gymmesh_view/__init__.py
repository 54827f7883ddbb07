"""A local page that shows stored rollouts, and those of a run that goes on.

sources.py       what is to be shown: runs and files
following.py     what is new in a run or a file, from where the last ended
summary.py       what the index keeps of a row (pure)
tables.py        the index's tables; indexing.py fills them in a thread, with trace_actors.py
filters.py       which rollouts, in which order (pure); store.py asks the index for them
detail.py        one rollout as the page shows it (pure), with conversation.py, call_tokens.py and
                 images.py; traced.py adds what a trace knows
reading.py       the page's API as JSON; server.py serves it, bundle.py writes it down
static/          the page, built from clients/view/ui
"""

from gymmesh_view.bundle import BundleSummary, write_bundle
from gymmesh_view.filters import Filters, Sort, parse_filters, parse_sort
from gymmesh_view.sources import Found, ViewSource, find_sources
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
