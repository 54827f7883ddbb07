"""What the journal counts."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import histogram

JOURNAL_COMMIT_SECONDS: Final = histogram(
    "gymmesh_journal_commit_seconds",
    "Time to put a group of outcomes on disk, fsync included, in seconds.",
)
