"""What a collector counts."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import counter, gauge

_TOKENS: Final = tuple(2**power for power in range(4, 18))

COLLECTOR_ROLLOUTS: Final = counter(
    "gymmesh_collector_rollouts_total",
    "Rollouts with an outcome on disk, by outcome (completed, failed) and boundary of the failure.",
    "outcome boundary",
)
COLLECTOR_ROLLOUTS_REQUESTED: Final = gauge(
    "gymmesh_collector_rollouts_requested",
    "Rollouts of the whole run, including earlier sessions.",
)
COLLECTOR_ROLLOUTS_KEPT: Final = gauge(
    "gymmesh_collector_rollouts_kept", "Rollouts of the run that earlier sessions wrote to disk."
)
COLLECTOR_IN_FLIGHT: Final = gauge(
    "gymmesh_collector_in_flight", "Attempts that were sent to agents and have not ended."
)
COLLECTOR_CONCURRENCY: Final = gauge(
    "gymmesh_collector_concurrency",
    "Current limit of concurrent attempts.",
)
COLLECTOR_RETRIES: Final = counter(
    "gymmesh_collector_retries_total",
    "Failed attempts that are retried, by boundary and reason.",
    "boundary reason",
)
COLLECTOR_RETRIES_WAITING: Final = gauge(
    "gymmesh_collector_retries_waiting", "Rollouts that wait for their next attempt."
)
COLLECTOR_ENDING: Final = gauge(
    "gymmesh_collector_ending", "Finished rollouts whose outcome waits for the disk or for a judge."
)
COLLECTOR_TOKENS: Final = counter(
    "gymmesh_collector_tokens_total",
    "Tokens of completed rollouts on disk, by direction (input, output).",
    "direction",
)
GROUPS_WAITING: Final = gauge(
    "gymmesh_groups_waiting", "Finished groups that no trainer has acknowledged."
)
