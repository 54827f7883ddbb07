"""What a sandbox service counts."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import counter, gauge, histogram

SANDBOXES_RUNNING: Final = gauge(
    "gymmesh_sandboxes_running", "Running sandboxes, by service.", "service"
)
SANDBOXES_PLACES: Final = gauge(
    "gymmesh_sandboxes_places",
    "Current maximum number of sandboxes that can run at the same time (places), by service.",
    "service",
)
SANDBOXES_WAITING: Final = gauge(
    "gymmesh_sandboxes_waiting", "Calls that wait for a place for a sandbox, by service.", "service"
)
SANDBOXES_CREATED: Final = counter(
    "gymmesh_sandboxes_created_total",
    "Requested sandboxes, by service and outcome: ready, or the reason of the error.",
    "service outcome",
)
SANDBOXES_ENDED: Final = counter(
    "gymmesh_sandboxes_ended_total",
    "Sandboxes that ended, by service and cause (asked, removed, expired, life, lost,"
    " out_of_memory, not_started, shutdown).",
    "service cause",
)
SANDBOXES_LEFT: Final = counter(
    "gymmesh_sandboxes_left_total",
    "Leftover sandboxes, by service and cause: earlier (left by a killed instance, and ended when"
    " the instance started again), stuck (could not be ended).",
    "service cause",
)
SANDBOXES_START_SECONDS: Final = histogram(
    "gymmesh_sandboxes_start_seconds",
    "Time of a sandbox's start, after the wait for a place, in seconds, by service.",
    "service",
)
SANDBOXES_EXEC_SECONDS: Final = histogram(
    "gymmesh_sandboxes_exec_seconds",
    "Time from the start to the end of a program that Exec ran, in seconds.",
)
SANDBOXES_PROCESSES: Final = gauge(
    "gymmesh_sandboxes_processes", "Processes that run in sandboxes."
)
SANDBOXES_OUTPUT_DROPPED: Final = counter(
    "gymmesh_sandboxes_output_dropped_bytes_total",
    "Bytes that processes in sandboxes wrote beyond their output limits.",
)
