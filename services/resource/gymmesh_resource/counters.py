"""The metrics of this room, by label values: looking a child up anew costs more than counting."""

from __future__ import annotations

from functools import cache

from gymmesh_runtime import metrics
from gymmesh_runtime.instruments import Count, Spread

__all__ = [
    "environment_model_calls",
    "rewards",
    "tool_calls",
    "tool_seconds",
    "verification_seconds",
    "verifications",
]


@cache
def tool_calls(environment: str, tool: str, outcome: str) -> Count:
    """Tool calls answered; `tool` is a name that is offered, or "unknown"."""
    return metrics.TOOL_CALLS.labels(environment, tool, outcome)


@cache
def tool_seconds(environment: str, tool: str) -> Spread:
    """Time that a tool ran."""
    return metrics.TOOL_SECONDS.labels(environment, tool)


@cache
def environment_model_calls(environment: str, model: str, outcome: str) -> Count:
    """Model calls that environments made; `outcome` is "ok" or the error's reason."""
    return metrics.ENVIRONMENT_MODEL_CALLS.labels(environment, model, outcome)


@cache
def verifications(environment: str, status: str) -> Count:
    """Verdicts."""
    return metrics.VERIFICATIONS.labels(environment, status)


@cache
def verification_seconds(environment: str) -> Spread:
    """Time that a verdict took."""
    return metrics.VERIFICATION_SECONDS.labels(environment)


@cache
def rewards(environment: str) -> Spread:
    """Rewards of verified rollouts."""
    return metrics.REWARDS.labels(environment)
