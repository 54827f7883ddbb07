"""SkyRL's own code around a generator of ours: its input, its engine's interface, its checks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from skyrl.backends.skyrl_train.inference_servers.base import InferenceEngineInterface
from skyrl.train.generators.base import GeneratorInterface
from skyrl.train.generators.utils import (
    concatenate_generator_outputs,
    get_metrics_from_generator_output,
    prepare_generator_input,
)

from examples.grpo.sums import Sums
from examples.grpo.tiny import make_tokenizer
from gymmesh_trainers.skyrl import GymmeshGenerator
from gymmesh_trainers.testing import RolloutFailed


class Engine(InferenceEngineInterface):  # type: ignore[misc]  # SkyRL is not typed here
    """SkyRL's interface of an engine; it says 3, or breaks."""

    def __init__(self, tokenizer: Any, *, breaks: bool = False) -> None:
        self.ids = [*tokenizer.encode("3"), tokenizer.eos_token_id]
        self.asked: list[dict[str, Any]] = []
        self.breaks = breaks

    async def generate(self, input_batch: Any, model: str | None = None) -> Any:
        self.asked.append(dict(input_batch))
        if self.breaks:
            raise RuntimeError("the engine is gone")
        return {
            "responses": ["3"],
            "response_ids": [self.ids],
            "stop_reasons": ["stop"],
            "response_logprobs": [[-0.5, -0.25]],
            "prompt_logprobs": None,
            "rollout_expert_indices": None,
        }


# What is not called here; the interface wants each to be there.
for _name in InferenceEngineInterface.__abstractmethods__ - {"generate"}:
    setattr(Engine, _name, None)
Engine.__abstractmethods__ = frozenset()


def prompts() -> list[dict[str, Any]]:
    """Rows as SkyRL's PromptDataset has them."""
    task = {"task_id": "b", "prompt": "1+1=", "expected_answer": "2"}
    return [
        {
            "prompt": [{"role": "user", "content": "1+2="}],
            "env_class": None,
            "env_extras": {"expected_answer": "3"},
            "uid": "a",
        },
        {
            "prompt": [{"role": "user", "content": "ignored"}],
            "env_class": None,
            "env_extras": {"task": json.dumps(task)},
            "uid": "b",
        },
    ]


def made(count: int) -> tuple[Any, list[str]]:
    sampling = {"temperature": 0.7, "max_generate_length": 8}
    batch, uids = prepare_generator_input(prompts(), count, sampling, "gymmesh", "train", 3)
    return batch, list(uids)


async def test_skyrl_takes_what_is_generated_for_its_own_input() -> None:
    tokenizer = make_tokenizer()
    engine = Engine(tokenizer)
    generator = GymmeshGenerator(Sums(), tokenizer, engine)
    # The interface wants nothing else, and SkyRL does not ask for its class.
    assert GeneratorInterface.__abstractmethods__ == {"generate"}
    batch, uids = made(2)
    try:
        first, second = await generator.generate(batch), await generator.generate(batch)
    finally:
        await generator.close()
    assert first["rewards"] == [1.0, 1.0, 0.0, 0.0]
    assert first["trajectory_ids"] == batch["trajectory_ids"]
    assert first["response_ids"] == [engine.ids] * 4
    assert first["rollout_logprobs"] == [[-0.5, -0.25]] * 4
    asked = sorted(one["prompt_token_ids"][0] for one in engine.asked)
    assert asked == sorted(first["prompt_token_ids"] + second["prompt_token_ids"])
    assert {one["sampling_params"]["temperature"] for one in engine.asked} == {0.7}
    metrics = get_metrics_from_generator_output(first, uids)
    assert metrics["avg_score"] == 0.5
    assert metrics["pass_at_n"] == 0.5
    whole = concatenate_generator_outputs([first, second])  # which validates it, too
    assert len(whole["response_ids"]) == 8
    assert whole["rollout_metrics"]["gymmesh/paths_left_out"] == 0


async def test_a_failed_rollout_is_no_row_of_skyrl() -> None:
    tokenizer = make_tokenizer()
    engine = Engine(tokenizer, breaks=True)
    generator = GymmeshGenerator(Sums(), tokenizer, engine, max_attempts=1)
    batch, _ = made(1)
    try:
        with pytest.raises(RolloutFailed, match="MODEL: INTERNAL_FAULT"):
            await generator.generate(batch)
    finally:
        await generator.close()
