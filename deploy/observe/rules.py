"""Recording rules: what alerts and people ask for often, worked out once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deploy.observe.families import FAMILIES as m
from deploy.observe.promql import Scope
from deploy.observe.rewards import mean_reward

_FAILED: Final = 'outcome="failed"'
_JUDGED: Final = 'outcome!="cancelled"'


@dataclass(frozen=True, slots=True)
class Times:
    """Durations, each `scale` times as long as said: tests do not wait for minutes."""

    scale: float = 1.0

    def minutes(self, count: float) -> str:
        """As Prometheus writes it."""
        return _written(self.seconds(60 * count))

    def seconds(self, count: float) -> float:
        """For thresholds."""
        return count * self.scale


AS_SAID: Final = Times()


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording rule, called `labels:metric:operation` as is the custom."""

    name: str
    expr: str

    def rule(self) -> dict[str, str]:
        """As Prometheus reads it."""
        return {"record": self.name, "expr": self.expr}


FAILED_SHARE: Final = "agent_environment:gymmesh_rollouts_failed:ratio_rate5m"
QUEUE_P95: Final = "model:gymmesh_model_queue_seconds:p95_rate5m"


def recordings(times: Times = AS_SAID) -> list[Recording]:
    """All of them. Names say the windows that they have where nothing is scaled."""
    scope = Scope(times.minutes(5))
    occupied = scope.gauge(m.ROLLOUTS_IN_FLIGHT, "agent")
    return [
        Recording(
            "agent_environment_outcome:gymmesh_rollouts:rate5m",
            scope.rate(m.ROLLOUTS, "agent", "environment", "outcome"),
        ),
        Recording(
            FAILED_SHARE, scope.share(m.ROLLOUTS, "agent", "environment", of=_FAILED, among=_JUDGED)
        ),
        Recording(
            "agent_environment_stage:gymmesh_rollout_stage_seconds:p95_rate5m",
            scope.quantile(0.95, m.ROLLOUT_STAGE_SECONDS, "agent", "environment", "stage"),
        ),
        Recording(
            "agent:gymmesh_collect_occupancy:ratio",
            f"{occupied} / {scope.gauge(m.COLLECT_CAPACITY, 'agent')}",
        ),
        Recording("environment:gymmesh_rewards:mean_rate5m", mean_reward(scope, "environment")),
        Recording(
            "model_direction:gymmesh_model_tokens:rate5m",
            scope.rate(m.MODEL_TOKENS, "model", "direction"),
        ),
        Recording(QUEUE_P95, scope.quantile(0.95, m.MODEL_QUEUE_SECONDS, "model")),
    ]


def _written(seconds: float) -> str:
    if seconds % 60 == 0:
        return f"{seconds / 60:.0f}m"
    return f"{seconds * 1000:.0f}ms"
