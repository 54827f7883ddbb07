"""Metrics of worker processes, and of the wait for a place to run."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import counter, gauge, histogram

SANDBOX_WAIT_SECONDS: Final = histogram(
    "gymmesh_sandbox_wait_seconds",
    "Time that a program waited for a free place in a sandbox, in seconds.",
)
WORKERS: Final = gauge(
    "gymmesh_workers", "Maximum number of worker processes that environments use at a time."
)
WORKERS_BUSY: Final = gauge(
    "gymmesh_workers_busy", "Worker processes of environments that are busy."
)
WORKER_WAIT_SECONDS: Final = histogram(
    "gymmesh_worker_wait_seconds", "Time that a call waited for a free worker process, in seconds."
)
WORKER_KILLS: Final = counter(
    "gymmesh_worker_kills_total",
    "Worker processes lost: killed at their time limit (timeout), killed because their caller"
    " ended (cancelled), or ended on their own (crashed).",
    "cause",
)
