"""Exports read by the dataset classes of veRL, OpenRLHF and NeMo Gym."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from omegaconf import OmegaConf
from openrlhf.datasets import PromptDataset, RewardDataset, SFTDataset
from openrlhf.datasets.utils import blending_datasets
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.dataset.rl_dataset import RLHFDataset

from gymmesh_data import ExportOptions, ExportSummary, Selection, export
from tests.handoff.rollouts import TOOLS, rollout_file

GOOD = ExportOptions(Selection(min_reward=1.0))


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rollout_file(tmp_path_factory.mktemp("rollouts"))


def exported(
    rollouts: Path, path: Path, name: str, options: ExportOptions | None = None
) -> ExportSummary:
    return export([rollouts], path, name, options)


def test_verl_reads_tasks(rollouts: Path, tmp_path: Path, tokenizer: Any) -> None:
    path = tmp_path / "tasks.jsonl"
    exported(rollouts, path, "verl")
    config = OmegaConf.create({"cache_dir": str(tmp_path), "max_prompt_length": 512})
    data = RLHFDataset(str(path), tokenizer, config)
    assert len(data) == 4
    row = data[1]
    assert [one["role"] for one in row["raw_prompt"]] == ["system", "user"]
    assert row["index"] == 1
    assert row["reward_model"] == {"style": "rule", "ground_truth": "4"}
    assert (row["data_source"], row["agent_name"]) == ("sums", "gymmesh")
    task = json.loads(row["extra_info"]["task"])
    assert task["responses_create_params"]["tools"] == TOOLS
    assert task["task_id"] == "sums/1"


def test_verl_reads_demonstrations(rollouts: Path, tmp_path: Path, tokenizer: Any) -> None:
    path = tmp_path / "sft.parquet"
    summary = exported(rollouts, path, "verl-sft", GOOD)
    # Two tools of different parameters are united in a table, and this is said.
    assert (
        summary.losses[
            "tools whose schemas get nulls because all tools of a table share one schema"
        ]
        == 4
    )
    config = OmegaConf.create({"max_length": 2048, "pad_mode": "no_padding"})
    data = MultiTurnSFTDataset(str(path), tokenizer, config)
    assert len(data) == 4
    one = data[0]
    trained = tokenizer.decode(one["input_ids"][one["loss_mask"].bool()])
    assert trained.count("<tool_call>") == 1
    assert '"arguments": {"left": 0, "right": 3}' in trained
    assert "It is 3." in trained
    # What the tool returned and the user asked is not trained.
    assert "What is" not in trained


def strategy(**data: Any) -> Any:
    """What OpenRLHF's dataset classes ask of their strategy."""
    arguments = SimpleNamespace(data=SimpleNamespace(**data), use_ms=False)
    return SimpleNamespace(args=arguments, is_rank_0=lambda: True, print=lambda *_: None)


def test_openrlhf_reads_tasks(rollouts: Path, tmp_path: Path, tokenizer: Any) -> None:
    path = tmp_path / "tasks.jsonl"
    exported(rollouts, path, "openrlhf")
    told = strategy(input_key="input", label_key="label", apply_chat_template=True)
    data = PromptDataset(blending_datasets(str(path), strategy=told), tokenizer, told)
    source, prompt, label, _ = data[2]
    assert (source, json.loads(label)["task_id"]) == ("sums", "sums/2")
    assert "What is 2 + 3?" in prompt


def test_openrlhf_reads_demonstrations(rollouts: Path, tmp_path: Path, tokenizer: Any) -> None:
    path = tmp_path / "sft.jsonl"
    exported(rollouts, path, "openrlhf-sft", GOOD)
    told = strategy(input_key="input", output_key=None, apply_chat_template=True)
    raw = blending_datasets(str(path), strategy=told)
    data = SFTDataset(raw, tokenizer, 2048, told, multiturn=True, num_processors=1)
    ids, _, mask = data[0]
    # The mask is on the place before the token that is learnt.
    trained = tokenizer.decode(ids[0, 1:][mask[0, :-1].bool()])
    assert '"arguments": {"left": 0, "right": 3}' in trained
    assert "It is 3." in trained
    assert "What is" not in trained


def test_openrlhf_reads_pairs(rollouts: Path, tmp_path: Path, tokenizer: Any) -> None:
    path = tmp_path / "dpo.jsonl"
    exported(rollouts, path, "openrlhf-dpo")
    told = strategy(
        prompt_key="prompt", chosen_key="chosen", rejected_key="rejected", apply_chat_template=True
    )
    raw = blending_datasets(str(path), strategy=told)
    data = RewardDataset(raw, tokenizer, 2048, told, is_dpo=True, num_processors=1)
    assert len(data) == 4
    chosen, _, rejected, _, *_ = data[0]
    assert '"name": "add"' in tokenizer.decode(chosen[0])
    assert '"name": "search"' in tokenizer.decode(rejected[0])


def test_nemo_gym_reads_tasks(rollouts: Path, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    exported(rollouts, path, "nemo-rl")
    config = RolloutCollectionConfig(
        input_jsonl_fpath=str(path), output_jsonl_fpath=str(tmp_path / "out.jsonl"), num_repeats=2
    )
    rows = RolloutCollectionHelper()._preprocess_rows_from_config(config)
    assert len(rows) == 8
    assert rows[0]["agent_ref"]["name"] == "gymmesh_agent"
    assert rows[0]["responses_create_params"]["input"][1]["content"] == "What is 0 + 3?"
    assert rows[0]["expected_answer"] == "3"
    assert "response" not in rows[0]
