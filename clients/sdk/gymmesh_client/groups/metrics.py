"""What a collector counts of groups for trainers."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import counter

GROUPS: Final = counter(
    "gymmesh_groups_total",
    "Groups for trainers, by outcome: finished, acknowledged, stale (too old at their turn), or "
    "redelivered (their consumer died).",
    "event",
)
