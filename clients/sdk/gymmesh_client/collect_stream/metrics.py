"""What a collector counts of its streams to agents."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import counter

COLLECT_RECONNECTS: Final = counter(
    "gymmesh_collect_reconnects_total",
    "Times that a collector lost its connection to an agent with attempts in flight.",
)
STALE_EVENTS: Final = counter(
    "gymmesh_stale_events_total", "Events of superseded attempts that a collector dropped."
)
