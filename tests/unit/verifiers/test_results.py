"""What verifiers says of an episode: a verdict where there is one, never a 0 in its place."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh_resource import Component, Skipped, Verdict
from gymmesh_resource.environments.verifiers.results import EpisodeFailed, verdict_of
from tests.unit.verifiers.results import episode, trace


def test_rewards_are_components_with_their_weights_and_metrics_beside_them() -> None:
    verdict = verdict_of(episode(trace()))
    assert isinstance(verdict, Verdict)
    assert verdict.reward == 1.125
    assert verdict.components == {
        "right": Component(1.0, 1.0),
        "brief": Component(0.5, 0.25),
        "turns": 2.0,
    }
    assert verdict.evidence["traces"][0]["stop_condition"] == "agent_completed"


def test_a_metric_called_like_a_reward_keeps_both() -> None:
    verdict = verdict_of(episode(trace(metrics={"right": 0.3})))
    assert isinstance(verdict, Verdict)
    assert verdict.components["metric.right"] == 0.3


def test_of_several_traces_those_that_train_count() -> None:
    judge = trace(agent="judge", trainable=False, reward=0.0, rewards={})
    verdict = verdict_of(episode(trace(agent="a", reward=1.0), trace(agent="b", reward=0.5), judge))
    assert isinstance(verdict, Verdict)
    assert verdict.reward == 0.75
    assert "a.right" in verdict.components
    assert "b.right" in verdict.components


def test_an_agents_own_limit_is_judged() -> None:
    for stopped in ("max_turns", "agent_timeout", "max_output_tokens"):
        limited = trace(stop_condition=stopped, timeout=stopped == "agent_timeout")
        assert isinstance(verdict_of(episode(limited)), Verdict)


def test_a_taskset_without_scores_is_not_judged() -> None:
    assert isinstance(verdict_of(episode(trace(rewards={}, reward=0.0))), Skipped)


_TASK = [{"type": "TaskError", "message": "the scorer\nbroke"}]


@pytest.mark.parametrize(
    ("result", "said", "scoring"),
    [
        (episode(trace(ok=False, errors=_TASK), ok=False), "TaskError: the scorer broke", True),
        (
            episode(trace(ok=False, errors=_TASK, scoring=False), ok=False),
            "TaskError: the scorer broke",
            False,
        ),
        (
            episode(trace(ok=False, errors=[{"type": "HarnessError", "message": "x"}]), ok=False),
            "HarnessError: x",
            False,
        ),
        (episode(trace(ok=False), ok=False), "the agent 'agent' failed", False),
        (episode(ok=False, errors=[{"type": "EnvError", "message": "y"}]), "EnvError: y", False),
        (episode(), "no agent ran", False),
        (
            episode(trace(stop_condition="setup_timeout", timeout=True)),
            "setup exceeded its time",
            False,
        ),
        (episode(trace(stop_condition="scoring_timeout")), "scoring exceeded its time", True),
        (episode(trace(stop_condition="finalize_timeout")), "finalize exceeded its time", False),
        (episode(trace(rewards={"right": None}, reward=0.0)), "'right' was not scored", True),
        (episode(trace(reward="nan")), "the reward is nan", True),
        (episode(trace(metrics={"turns": "inf"})), "the metric 'turns' is inf", True),
        (episode(trace(reward=True)), "the reward is True", True),
    ],
)
def test_a_failure_has_no_reward(result: dict[str, Any], said: str, scoring: bool) -> None:
    with pytest.raises(EpisodeFailed, match=said) as caught:
        verdict_of(result)
    assert caught.value.scoring == scoring
