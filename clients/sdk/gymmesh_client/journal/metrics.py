"""What the journal counts."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import histogram

JOURNAL_COMMIT_SECONDS: Final = histogram(
    "gymmesh_journal_commit_seconds",
    "Time to write a batch of outcomes to disk, fsync included, in seconds.",
)
