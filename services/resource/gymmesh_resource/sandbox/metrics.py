"""Metrics of sandboxes."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import counter, gauge

SANDBOX_PLACES: Final = gauge(
    "gymmesh_sandbox_places", "Programs that this process's sandboxes run at a time, at most."
)
SANDBOX_PLACES_BUSY: Final = gauge("gymmesh_sandbox_places_busy", "Programs that run in sandboxes.")
SANDBOX_STARTS: Final = counter(
    "gymmesh_sandbox_starts_total",
    "Programs begun in sandboxes: cold, or warm (started before they were asked for).",
    "start",
)
SANDBOX_ENDINGS: Final = counter(
    "gymmesh_sandbox_endings_total",
    "Programs that ended in sandboxes: exited, killed at their limit of time (timed_out), output"
    " (output_limit) or memory (killed), or stopped with their caller; failed: a fault of the"
    " sandbox.",
    "ending",
)
