"""TRL trains on what is exported for it, and its loss falls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from datasets import load_dataset
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

from gymmesh_data import ExportOptions, Selection, export
from tests.handoff.rollouts import rollout_file
from tests.unit.data.rows import read_records


def dataset(folder: Path, name: str, options: ExportOptions | None = None) -> Any:
    path = folder / f"{name}.jsonl"
    export([rollout_file(folder)], path, name, options)
    return load_dataset("json", data_files=str(path), cache_dir=str(folder / "cache"))["train"]


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    """For a processor, logging each step."""
    return {
        "output_dir": str(folder / "out"),
        "max_steps": 12,
        "learning_rate": 3e-3,
        "per_device_train_batch_size": 4,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "seed": 0,
    } | more


def losses(trainer: Any) -> list[float]:
    trainer.train()
    return [float(one["loss"]) for one in trainer.state.log_history if "loss" in one]


def assert_falls(found: list[float]) -> None:
    assert sum(found[-3:]) < 0.9 * sum(found[:3]), found


def test_demonstrations_lower_the_loss(tmp_path: Path, policy: str) -> None:
    data = dataset(tmp_path, "sft", ExportOptions(Selection(min_reward=1.0)))
    config = SFTConfig(**settings(tmp_path, max_length=2048))
    trainer = SFTTrainer(model=policy, args=config, train_dataset=data)
    text = trainer.processing_class.decode(trainer.train_dataset[0]["input_ids"])
    # Tools and arguments reach the text as they were: no key that another tool or call has.
    assert '"properties": {"query": {"type": "string"}}' in text
    assert '"arguments": {"left": ' in text
    assert "null" not in text
    assert_falls(losses(trainer))


def test_exact_tokens_are_trained_as_they_were_sampled(tmp_path: Path, policy: str) -> None:
    data = dataset(tmp_path, "tokens")
    config = SFTConfig(**settings(tmp_path, max_length=2048))
    trainer = SFTTrainer(model=policy, args=config, train_dataset=data)
    records = read_records(tmp_path / "tokens.jsonl")
    prepared = list(trainer.train_dataset)
    assert [one["input_ids"] for one in prepared] == [one["input_ids"] for one in records]
    assert [one["labels"] for one in prepared] == [one["labels"] for one in records]
    assert_falls(losses(trainer))


def test_pairs_lower_the_loss(tmp_path: Path, policy: str) -> None:
    data = dataset(tmp_path, "dpo")
    config = DPOConfig(**settings(tmp_path, max_length=2048))
    trainer = DPOTrainer(model=policy, args=config, train_dataset=data)
    assert_falls(losses(trainer))


def test_the_columns_of_a_task_reach_the_rewards_of_grpo(tmp_path: Path, policy: str) -> None:
    data = dataset(tmp_path, "trl")
    seen: list[dict[str, Any]] = []

    def reward(completions: list[Any], **columns: Any) -> list[float]:
        seen.append(columns)
        return [float(len(str(one)) % 3) for one in completions]

    config = GRPOConfig(
        **settings(
            tmp_path, max_steps=1, num_generations=2, max_completion_length=4, temperature=1.0
        )
    )
    GRPOTrainer(model=policy, args=config, train_dataset=data, reward_funcs=reward).train()
    columns = seen[0]
    tasks = [json.loads(one) for one in columns["task"]]
    assert [one["expected_answer"] for one in tasks] == columns["ground_truth"]
    assert columns["task_id"][0] == columns["task_id"][1]  # the two of a group
    assert set(columns["mean_reward"]) == {0.5}
