"""What an agent counts of collectors' streams."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import gauge, histogram

COLLECT_STREAMS: Final = gauge(
    "gymmesh_collect_streams",
    "Streams of collectors that this agent holds, including streams that can still be resumed.",
    "agent",
)
COLLECT_WAITING: Final = gauge(
    "gymmesh_collect_waiting", "Attempts that wait in this agent for a place to run.", "agent"
)
COLLECT_WAIT_SECONDS: Final = histogram(
    "gymmesh_collect_wait_seconds",
    "Time that an attempt waited in this agent for a place to run, in seconds.",
    "agent",
)
COLLECT_CAPACITY: Final = gauge(
    "gymmesh_collect_capacity",
    "Maximum number of attempts that this agent runs at the same time for collectors.",
    "agent",
)
