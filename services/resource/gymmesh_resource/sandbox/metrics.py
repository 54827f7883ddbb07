"""Metrics of sandboxes."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import counter, gauge

SANDBOX_PLACES: Final = gauge(
    "gymmesh_sandbox_places",
    "Maximum number of programs that this process's sandboxes run at a time.",
)
SANDBOX_PLACES_BUSY: Final = gauge("gymmesh_sandbox_places_busy", "Programs that run in sandboxes.")
SANDBOX_STARTS: Final = counter(
    "gymmesh_sandbox_starts_total",
    "Programs started in sandboxes: cold (at the request), or warm (before the request).",
    "start",
)
SANDBOX_ENDINGS: Final = counter(
    "gymmesh_sandbox_endings_total",
    "Programs that ended in sandboxes: exited, killed at their limit of time (timed_out), output"
    " (output_limit) or memory (killed), stopped with their caller, or failed (a fault of the"
    " sandbox).",
    "ending",
)
