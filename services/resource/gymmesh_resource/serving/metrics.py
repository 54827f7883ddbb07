"""What an environment counts of sessions, tools and verdicts."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import counter, gauge, histogram

TOOL_CALLS: Final = counter(
    "gymmesh_tool_calls_total",
    "Tool calls answered, by outcome (ok, tool_error, bad_arguments, unknown_tool, fault).",
    "environment tool outcome",
)
TOOL_SECONDS: Final = histogram(
    "gymmesh_tool_seconds", "Time that a tool ran, in seconds.", "environment tool"
)
SESSIONS_OPEN: Final = gauge("gymmesh_sessions_open", "Sessions open.", "environment")
SESSIONS_LIMIT: Final = gauge(
    "gymmesh_sessions_limit", "Sessions that may be open at a time.", "environment"
)
SESSIONS_SWEPT: Final = counter(
    "gymmesh_sessions_swept_total",
    "Sessions closed because no call arrived during their idle time.",
    "environment",
)
VERIFICATIONS: Final = counter(
    "gymmesh_verifications_total",
    "Verdicts, by status (verified, pending, skipped, fault).",
    "environment status",
)
VERIFICATION_SECONDS: Final = histogram(
    "gymmesh_verification_seconds", "Time that a verdict took, in seconds.", "environment"
)
REWARDS: Final = histogram(
    "gymmesh_rewards",
    "Rewards of verified rollouts. The buckets below 0 allow no _sum.",
    "environment",
    buckets=(-1.0, -0.5, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.999, 1.0),
)
# Two counters in place of a sum, which could go down and would then look like a restart.
REWARDS_ABSOLUTE: Final = counter(
    "gymmesh_rewards_absolute_total",
    "Sum of the absolute values of the rewards of verified rollouts, by sign (positive, negative).",
    "environment sign",
)
