"""Metrics of worker processes, and of the wait for a place to run."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import counter, gauge, histogram

SANDBOX_WAIT_SECONDS: Final = histogram(
    "gymmesh_sandbox_wait_seconds",
    "Waits for a place in a sandbox where none was free, in seconds.",
)
WORKERS: Final = gauge(
    "gymmesh_workers", "Worker processes that environments may use at a time, at most."
)
WORKERS_BUSY: Final = gauge("gymmesh_workers_busy", "Worker processes of environments at work.")
WORKER_WAIT_SECONDS: Final = histogram(
    "gymmesh_worker_wait_seconds", "Waits for a worker process where none was free, in seconds."
)
WORKER_KILLS: Final = counter(
    "gymmesh_worker_kills_total",
    "Worker processes lost: killed for their time (timeout) or with their caller (cancelled), or"
    " dead by themselves (crashed).",
    "cause",
)
