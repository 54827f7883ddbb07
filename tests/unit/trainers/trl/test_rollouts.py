"""What TRL's `rollout_func` gets, with an engine that follows a script."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gymmesh_client import UserError
from gymmesh_trainers import SamplingParams
from gymmesh_trainers.trl import TrlRollouts
from tests.unit.trainers.char_model import CharTokenizer, ScriptEngine
from tests.unit.trainers.environments import Sums, rows

CALL = '<tool_call>{"name":"add","arguments":{"left":1,"right":1}}</tool_call>'


def trainer(limit: int | None, **given: Any) -> Any:
    """What the hook reads of a GRPOTrainer."""
    usual = {
        "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0,
        "generation_kwargs": None, "max_completion_length": limit, "use_vllm": False,
    }  # fmt: skip
    return SimpleNamespace(
        args=SimpleNamespace(**usual | given),
        state=SimpleNamespace(global_step=0),
        processing_class=CharTokenizer(),
    )


def generated(limit: int | None) -> tuple[dict[str, Any], list[int], dict[str, int]]:
    """The rows, how many tokens each call sampled, and the counts; the policy calls without end."""
    sampled: list[int] = []
    engine = ScriptEngine(lambda prompt: CALL)

    async def watched(prompt: list[int], params: Any) -> Any:
        made = await engine(prompt, params)
        sampled.append(len(made.token_ids))
        return made

    rollouts = TrlRollouts(Sums(), rows(1), engine=watched, max_steps=4)
    try:
        found = rollouts([rollouts.rows[0]["prompt"]], trainer(limit))
        return found, sampled, dict(rollouts.counts)
    finally:
        rollouts.close()


def test_the_limit_of_a_completion_holds_over_all_calls_of_a_rollout() -> None:
    one = len(CALL) + 1
    limit = 2 * one + 20
    found, sampled, counts = generated(limit)
    assert sum(sampled) <= limit
    assert max(sampled) == one
    [completion], [mask], [logprobs] = (
        found["completion_ids"], found["env_mask"], found["logprobs"],
    )  # fmt: skip
    assert len(completion) == len(mask) == len(logprobs) == limit  # tools' results count, too
    assert counts["completions_cut"] == 1
    assert counts["completions_unscored"] == 1
    assert found["gymmesh_reward"] == [None]


def test_without_a_limit_a_completion_is_whole() -> None:
    found, sampled, counts = generated(None)
    [completion], [mask] = found["completion_ids"], found["env_mask"]
    assert sampled == [len(CALL) + 1] * 4
    assert sum(mask) == sum(sampled) < len(completion)
    assert counts.get("completions_cut", 0) == 0


def test_sampling_parameters_of_trl_reach_the_engine() -> None:
    engine = ScriptEngine(lambda prompt: "1")
    asked: list[SamplingParams] = []

    async def watched(prompt: list[int], params: SamplingParams) -> Any:
        asked.append(params)
        return await engine(prompt, params)

    rollouts = TrlRollouts(Sums(), rows(1), engine=watched)
    try:
        rollouts([rollouts.rows[0]["prompt"]], trainer(64, temperature=0.7, top_k=20, min_p=0.05))
    finally:
        rollouts.close()
    [params] = asked
    assert params.as_dict() == {
        "temperature": 0.7, "top_p": 1.0, "top_k": 20, "min_p": 0.05, "max_tokens": 64,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"repetition_penalty": 1.2}, "repetition_penalty"),
        ({"generation_kwargs": {"length_penalty": 2.0}}, "generation_kwargs"),
    ],
)
def test_sampling_parameters_that_no_engine_gets_are_refused(
    given: dict[str, Any], name: str
) -> None:
    rollouts = TrlRollouts(Sums(), rows(1), engine=ScriptEngine(lambda prompt: "1"))
    with pytest.raises(UserError, match=f"^{name}: TrlRollouts can't pass this on"):
        rollouts([rollouts.rows[0]["prompt"]], trainer(64, **given))
