"""One rollout as the page shows it: detail.py has the whole. All but traced.py is pure.

conversation.py  its items, as messages and calls
call_tokens.py   the tokens of its model calls
images.py        which images are shown
traced.py        what a run's trace adds
"""

from gymmesh_view.rollout.call_tokens import spells, tokens_of
from gymmesh_view.rollout.detail import detail_of, thread_of
from gymmesh_view.rollout.traced import traced

__all__ = [
    "detail_of",
    "spells",
    "thread_of",
    "tokens_of",
    "traced",
]
