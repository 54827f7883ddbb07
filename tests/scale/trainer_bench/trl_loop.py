"""TRL's own loop: GRPOTrainer renders, calls tools and goes on; the sampling is ours.

It samples a batch at a time, so its engine has no latency here.
"""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

from tests.scale.trainer_bench.work import QUESTION, REPEATS, WANTED, Engine, Measured, tokenizer


def add(left: int, right: int) -> str:
    """Add two numbers.

    Args:
        left: one.
        right: the other.
    """
    return str(left + right)


async def measure(rollouts: int, in_flight: int, late_s: float) -> Measured:
    """Run so many, a batch of `in_flight` at a time."""
    os.environ.update(TRL_EXPERIMENTAL_SILENCE="1", HF_HUB_OFFLINE="1")
    from datasets import Dataset
    from transformers import Qwen2Config, Qwen2ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    tokens = tokenizer()
    engine = Engine(tokens)

    class Trainer(GRPOTrainer):  # type: ignore[misc]  # TRL is not typed here
        def _generate_single_turn(self, prompt_ids: Any, *rest: Any, **options: Any) -> Any:
            made = [list(engine.sampled(ids)) for ids in prompt_ids]
            return made, [[-0.1] * len(ids) for ids in made]

    config = Qwen2Config(
        vocab_size=len(tokens), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=4096,
        pad_token_id=0, eos_token_id=2,
    )  # fmt: skip
    prompt = [{"role": "user", "content": QUESTION}]
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            Qwen2ForCausalLM(config),
            reward_funcs=lambda completions, **rest: [1.0] * len(completions),
            train_dataset=Dataset.from_list([{"prompt": prompt}] * in_flight),
            processing_class=tokens,
            tools=[add],
            args=GRPOConfig(
                output_dir=folder, num_generations=REPEATS, max_completion_length=512,
                per_device_train_batch_size=max(in_flight, REPEATS), use_cpu=True, bf16=False,
                report_to=[], save_strategy="no",
            ),
        )  # fmt: skip
        # What TRL sets before it generates.
        trainer._sync_tool_dicts = [{"add": add}] * in_flight
        trainer._async_tool_dicts = [{}] * in_flight
        trainer._generate([prompt] * in_flight)  # warms up
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        for _ in range(rollouts // in_flight):
            made = trainer._generate([prompt] * in_flight)
            ended = [tokens.decode(ids[-64:]) for ids in made[1]]
            assert all(WANTED in text for text in ended)
        return Measured(time.process_time() - cpu_s, time.perf_counter() - wall_s)
