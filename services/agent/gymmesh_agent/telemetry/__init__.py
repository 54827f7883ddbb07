"""Metrics and traces of an agent's attempts.

metrics   the metrics of rollouts
rollouts  what is counted when an attempt ends, and its spans
"""

from gymmesh_agent.telemetry.rollouts import (
    MaybeSpan,
    RolloutMetrics,
    attempt_span,
    model_span,
    record_call,
    record_end,
    record_tool,
    record_verdict,
    tool_span,
    turn_span,
    us_since,
    verify_span,
)

__all__ = [
    "MaybeSpan",
    "RolloutMetrics",
    "attempt_span",
    "model_span",
    "record_call",
    "record_end",
    "record_tool",
    "record_verdict",
    "tool_span",
    "turn_span",
    "us_since",
    "verify_span",
]
