"""The metrics of an agent's rollouts."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import counter, gauge, histogram

_STAGE_SECONDS: Final = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_CALLS: Final = (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100, 200)
_TOKENS: Final = tuple(2**power for power in range(4, 18))
_VERSIONS: Final = (0, 1, 2, 3, 4, 6, 8, 12, 16, 32)

ROLLOUTS: Final = counter(
    "gymmesh_rollouts_total",
    "Attempts ended, by outcome (completed, failed, cancelled) and boundary of the failure.",
    "agent environment outcome boundary",
)
ROLLOUTS_IN_FLIGHT: Final = gauge(
    "gymmesh_rollouts_in_flight", "Attempts running in this agent.", "agent"
)
ROLLOUT_SECONDS: Final = histogram(
    "gymmesh_rollout_seconds", "Wall-clock time of an attempt, in seconds.", "agent environment"
)
ROLLOUT_STAGE_SECONDS: Final = histogram(
    "gymmesh_rollout_stage_seconds",
    "Time of an attempt, in seconds, by stage. The stages are queue (waiting in the agent for a"
    " place to run), create_session, model_queue (waiting in the model service), model, call_tool,"
    " next_turn, verify and close_session. Each of several concurrent calls counts in full. A stage"
    " that took no time is not counted.",
    "agent environment stage",
    buckets=_STAGE_SECONDS,
)
ROLLOUT_FAILURES: Final = counter(
    "gymmesh_rollout_failures_total",
    "Attempts that failed, by boundary and reason (as in docs/reference/errors.md).",
    "agent environment boundary reason",
)
ROLLOUT_MODEL_CALLS: Final = histogram(
    "gymmesh_rollout_model_calls",
    "Model calls of a completed rollout.",
    "agent environment",
    buckets=_CALLS,
)
ROLLOUT_TOOL_CALLS: Final = histogram(
    "gymmesh_rollout_tool_calls",
    "Tool calls of a completed rollout.",
    "agent environment",
    buckets=_CALLS,
)
ROLLOUT_OUTPUT_TOKENS: Final = histogram(
    "gymmesh_rollout_output_tokens",
    "Tokens that models wrote in a completed rollout.",
    "agent environment",
    buckets=_TOKENS,
)
ROLLOUT_WEIGHTS_LAG: Final = histogram(
    "gymmesh_rollout_weights_lag_versions",
    "Number of versions between the oldest and the newest weights that a completed rollout used,"
    " if the model service reports versions.",
    "agent environment",
    buckets=_VERSIONS,
)
