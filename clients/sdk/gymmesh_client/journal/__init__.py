"""Writes a run: rows to their files, and commits that name them to the log. See
docs/reference/journal.md.

journal   commits, each on disk before it counts
writer    many appends, one commit
metrics   of both
"""

from gymmesh_client.journal.journal import Journal, NewOutcome
from gymmesh_client.journal.writer import COMMIT_DELAY_S, JournalWriter

__all__ = [
    "COMMIT_DELAY_S",
    "Journal",
    "JournalWriter",
    "NewOutcome",
]
