"""What is measured of an agent's attempts: how they ended, and where their time went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_runtime import metrics

# An endpoint may say any number of tokens; the contract has 63 bits for their sum.
_MOST_TOKENS = 2**63 - 1


@dataclass(slots=True)
class Tally:
    """What an attempt did so far: the fields of `Counts`, and where the time went.

    Attributes:
        model_us, tool_us, turn_us: microseconds that calls of models (waits for a place included),
            tools and the environment's turns took, each counted where some run side by side.
        model_queue_us: of those of models, the waits for a place.
    """

    model_calls: int = 0
    tool_calls: int = 0
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    model_us: int = 0
    model_queue_us: int = 0
    tool_us: int = 0
    turn_us: int = 0

    def counts(self) -> rollout_pb2.Counts:
        """The counts in the contract's message."""
        return rollout_pb2.Counts(
            model_calls=self.model_calls,
            tool_calls=self.tool_calls,
            turns=self.turns,
            input_tokens=min(self.input_tokens, _MOST_TOKENS),
            output_tokens=min(self.output_tokens, _MOST_TOKENS),
        )

    def stages(self) -> dict[str, float]:
        """Seconds by the stage of the metric gymmesh_rollout_stage_seconds."""
        return {
            "model_queue": self.model_queue_us / 1e6,
            "model": (self.model_us - self.model_queue_us) / 1e6,
            "call_tool": self.tool_us / 1e6,
            "next_turn": self.turn_us / 1e6,
        }


class _Lengths:
    """How long an agent's completed rollouts in one environment are."""

    def __init__(self, agent: str, environment: str) -> None:
        self.model_calls = metrics.ROLLOUT_MODEL_CALLS.labels(agent, environment)
        self.tool_calls = metrics.ROLLOUT_TOOL_CALLS.labels(agent, environment)
        self.output_tokens = metrics.ROLLOUT_OUTPUT_TOKENS.labels(agent, environment)
        self.weights_lag = metrics.ROLLOUT_WEIGHTS_LAG.labels(agent, environment)


class _InEnvironment:
    """How an agent's attempts in one environment end."""

    def __init__(self, agent: str, environment: str) -> None:
        self.endings = cache(partial(metrics.ROLLOUTS.labels, agent, environment))
        self.failures = cache(partial(metrics.ROLLOUT_FAILURES.labels, agent, environment))
        self.stages = cache(partial(metrics.ROLLOUT_STAGE_SECONDS.labels, agent, environment))
        self.seconds = metrics.ROLLOUT_SECONDS.labels(agent, environment)


class RolloutMetrics:
    """The metrics of one agent's attempts.

    An environment's name is empty for attempts that met none: a label takes no made-up values.
    """

    def __init__(self, agent: str) -> None:
        #: The gauge of attempts that run.
        self.in_flight = metrics.ROLLOUTS_IN_FLIGHT.labels(agent)
        self._in = cache(partial(_InEnvironment, agent))
        self._lengths = cache(partial(_Lengths, agent))

    def ended(
        self,
        environment: str,
        rollout_id: str,
        outcome: str,
        boundary: str,
        seconds: float,
        stages: Mapping[str, float],
    ) -> None:
        """An attempt ended so, after so many seconds, which it spent in these stages."""
        measured = self._in(environment)
        measured.endings(outcome, boundary).inc(1.0, rollout_id)
        measured.seconds.observe(seconds, rollout_id)
        for stage, spent in stages.items():
            if spent > 0.0:
                measured.stages(stage).observe(spent, rollout_id)

    def completed(
        self, environment: str, rollout_id: str, tally: Tally, weights_lag: int | None
    ) -> None:
        """A completed rollout was as long as this; weights_lag: in versions, None: not known."""
        lengths = self._lengths(environment)
        lengths.model_calls.observe(tally.model_calls)
        lengths.tool_calls.observe(tally.tool_calls)
        lengths.output_tokens.observe(tally.output_tokens, rollout_id)
        if weights_lag is not None:
            lengths.weights_lag.observe(weights_lag, rollout_id)

    def failed(self, environment: str, rollout_id: str, boundary: str, reason: str) -> None:
        """An attempt failed there, for this reason of errors.proto."""
        self._in(environment).failures(boundary, reason).inc(1.0, rollout_id)

    def closed(self, environment: str, rollout_id: str, seconds: float) -> None:
        """Closing an attempt's session took so long, after its end."""
        self._in(environment).stages("close_session").observe(seconds, rollout_id)
