"""What is measured of an agent's attempts, and traced.

metrics   the metrics of rollouts
rollouts  what is counted of an attempt when it ends, and its spans
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
