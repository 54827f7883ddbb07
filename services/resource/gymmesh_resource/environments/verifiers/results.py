"""The result of an episode, as verifiers reports it: a verdict, or why there is none. Pure.

Invariant: a number that verifiers has for an episode that failed, or for one that was not scored,
is never a reward. It sums what was scored, so an episode without any score has 0 there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gymmesh_resource import Component, Skipped, Verdict

# Deadlines of stages that are not the policy's: what was scored after one is no verdict on it.
_NOT_THE_POLICYS: Final = ("setup_timeout", "finalize_timeout", "scoring_timeout")
_SHOWN: Final = 500


class EpisodeFailed(Exception):
    """There is no verdict; one clause says why. `scoring`: it broke as it was scored."""

    def __init__(self, problem: str, *, scoring: bool = False) -> None:
        super().__init__(problem)
        self.scoring = scoring


def verdict_of(result: Mapping[str, Any]) -> Verdict | Skipped:
    """The verdict on an episode, of what the runner says of it. Raises `EpisodeFailed`.

    The reward is that of the trace that trains; with several of them, their mean.
    """
    traces: Sequence[Mapping[str, Any]] = result["traces"]
    for trace in traces:
        _check(trace)
    if not result["ok"]:
        raise EpisodeFailed(_problem(result["errors"], "the episode failed"))
    judged = [trace for trace in traces if trace["trainable"]] or list(traces)
    if not judged:
        raise EpisodeFailed("no agent ran")
    if not any(trace["rewards"] for trace in judged):
        return Skipped("the taskset has no scoring function", _evidence(traces))
    several = len(traces) > 1
    components: dict[str, float | Component] = {}
    for trace in traces:
        prefix = f"{trace['agent']}." if several else ""
        components |= _components(trace, prefix)
    reward = math.fsum(_number(trace["reward"], "the reward") for trace in judged) / len(judged)
    return Verdict(reward, components, _evidence(traces))


def _check(trace: Mapping[str, Any]) -> None:
    """Raises `EpisodeFailed` for a trace that failed, or was not scored to its end."""
    agent, stopped = trace["agent"], trace["stop_condition"]
    if not trace["ok"]:
        failed = _problem(trace["errors"], f"the agent {agent!r} failed ({stopped})")
        kind = trace["errors"][-1]["type"] if trace["errors"] else ""
        raise EpisodeFailed(failed, scoring=trace["scoring"] and kind == "TaskError")
    if stopped in _NOT_THE_POLICYS:
        stage = stopped.removesuffix("_timeout")
        raise EpisodeFailed(f"{stage} exceeded its time limit", scoring=stage == "scoring")
    for name, reward in trace["rewards"].items():
        if reward is None:
            raise EpisodeFailed(f"{name!r} was not scored", scoring=True)


def _components(trace: Mapping[str, Any], prefix: str) -> dict[str, float | Component]:
    """The rewards with their weights, and the metrics; a metric called like a reward has
    `metric.` before its name.
    """
    found: dict[str, float | Component] = {}
    for name, reward in trace["rewards"].items():
        score = _number(reward["score"], f"the reward {name!r}")
        found[prefix + name] = Component(
            score, _number(reward["weight"], f"the weight of {name!r}")
        )
    for name, value in trace["metrics"].items():
        if value is not None:
            shown = f"{prefix}metric.{name}" if prefix + name in found else prefix + name
            found[shown] = _number(value, f"the metric {name!r}")
    return found


def _number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise EpisodeFailed(f"{what} is {value}, which is not a finite number", scoring=True)
    return float(value)


def _problem(errors: Sequence[Mapping[str, Any]], otherwise: str) -> str:
    if not errors:
        return otherwise
    last = errors[-1]
    return f"{last['type']}: {' '.join(str(last['message']).split())[:_SHOWN]}"


def _evidence(traces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    kept = ("id", "agent", "reward", "stop_condition", "turns", "info")
    return {"traces": [{key: trace[key] for key in kept if key in trace} for trace in traces]}
