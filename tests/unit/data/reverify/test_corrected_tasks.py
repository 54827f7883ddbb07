"""What a verdict put right of its task stays right: for the next verdict, and for exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from gymmesh_cli.main import cli
from gymmesh_data import export, read_rollouts
from tests.unit.data.rows import read_records, row, text, write_rows

_SET = "--set=environments.string_match.use=string_match"


def judged(source: Path, output: Path, *options: str) -> list[tuple[float, object]]:
    """The rewards of new verdicts, each with the answer that the next verifier would be given."""
    command = ["reverify", str(source), "--output", str(output), "--json", _SET, *options]
    ended = CliRunner().invoke(cli, command)
    assert ended.exit_code == 0, ended.output
    tasks = output.with_name(f"{output.stem}.tasks.jsonl")
    export([output], tasks, "trl", overwrite=True)
    truths = {one["task_id"]: one["ground_truth"] for one in read_records(tasks)}
    return sorted((one.reward or 0.0, truths[one.task_id]) for one in read_rollouts([output]))


def test_a_corrected_answer_is_not_forgotten(tmp_path: Path) -> None:
    mode = {"extraction_mode": "full_response"}
    wrong: Any = {"environment": "string_match", "expected_answer": "41"} | mode
    source = write_rows(
        tmp_path / "rows.jsonl",
        [row(text("42"), reward=0.0, **wrong), row(text("43"), reward=0.0, repeat=1, **wrong)],
    )
    corrected = tmp_path / "corrected.jsonl"
    params = {"input": "What is 6 * 7?"}
    task = {"task_id": "sum-1", "responses_create_params": params, "expected_answer": "42"} | mode
    corrected.write_text(json.dumps(task) + "\n")
    right = [(0.0, "42"), (1.0, "42")]
    assert judged(source, tmp_path / "one.jsonl", "--tasks", str(corrected)) == right
    assert judged(tmp_path / "one.jsonl", tmp_path / "two.jsonl") == right
    assert judged(tmp_path / "two.jsonl", tmp_path / "three.jsonl") == right
    (kept, *_) = read_rollouts([tmp_path / "three.jsonl"])
    assert kept.row["expected_answer"] == "41"  # the row is the old one but for its verdict
    # Another correction takes the place of the first.
    corrected.write_text(json.dumps(task | {"expected_answer": "43"}) + "\n")
    again = judged(tmp_path / "two.jsonl", tmp_path / "four.jsonl", "--tasks", str(corrected))
    assert again == [(0.0, "43"), (1.0, "43")]
    assert judged(tmp_path / "four.jsonl", tmp_path / "five.jsonl") == again
