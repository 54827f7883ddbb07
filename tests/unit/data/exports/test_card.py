"""What the card of a folder for the Hub says."""

from __future__ import annotations

from pathlib import Path

from gymmesh_data import ExportOptions, PairRules, Selection, export_hub
from tests.unit.data.rows import row, text, write_rows


def card_of(tmp_path: Path, options: ExportOptions | None = None) -> str:
    rows = []
    for repeat, reward in enumerate((1.0, 0.5, 0.0, None)):
        one = row(text(f"answer {repeat}"), task="sums/0", repeat=repeat, reward=reward)
        one["environment"] = "math"
        one["response"]["model"] = "policy-7b"
        one["responses_create_params"] = {"input": "What is 2 + 2?"}
        rows.append(one)
    source = write_rows(tmp_path / "rows.jsonl", rows)
    export_hub([source], tmp_path / "sums", options)
    return (tmp_path / "sums" / "README.md").read_text()


def test_it_says_what_is_there_by_which_thresholds_and_what_is_not(tmp_path: Path) -> None:
    card = card_of(tmp_path)
    assert "Environments: math (rollouts: 4)." in card
    assert "Models: policy-7b (rollouts: 4)." in card
    assert "| 4 | every rollout, with its exact tokens | all completed rollouts |" in card
    assert "| reward at least 1, no duplicates |" in card
    assert "| reward difference above 0, at most 4 per task |" in card
    assert "- sft, train: rollouts with a reward below 1: 2" in card
    assert "- dpo, train: rollouts without a reward: 1" in card
    assert "`datasets` 4.7 or later" in card


def test_it_says_the_options(tmp_path: Path) -> None:
    selection = Selection(min_reward=0.5, whole=True, environments=frozenset({"math"}))
    card = card_of(tmp_path, ExportOptions(selection, PairRules(margin=0.25, per_task=2)))
    assert "| reward at least 0.5, no rollouts cut short by a limit |" in card
    assert "| reward at least 0.5, no duplicates, no rollouts cut short by a limit |" in card
    assert "reward difference at least 0.25, at most 2 per task |" in card
