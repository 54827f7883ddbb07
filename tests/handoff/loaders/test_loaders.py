"""Exports read by datasets, pyarrow, pandas, Harbor and Inspect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow.ipc
import pyarrow.parquet
import pytest
from harbor.models.trajectories import Trajectory
from harbor.utils.trajectory_validator import TrajectoryValidator
from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalLog,
    EvalSample,
    EvalSpec,
    read_eval_log,
    read_eval_log_sample,
    read_eval_log_sample_summaries,
    write_eval_log,
)
from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, ChatMessageUser, ModelOutput
from inspect_ai.scorer import Score
from inspect_ai.tool import ToolCall

from gymmesh_data import FORMATS, export, export_hub, read_rollouts, samples_of
from gymmesh_data.imports import Imports, import_file
from tests.handoff.rollouts import TOOLS, rollout_file
from tests.unit.data.rows import read_records

# What the second call of a right rollout read and sampled, and the mask over all of it.
IDS, MASK = [10, 11, 12, 20, 21, 30, 31, 40, 41, 2], [0, 0, 0, 1, 1, 0, 0, 1, 1, 1]


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rollout_file(tmp_path_factory.mktemp("rollouts"))


def exported(rollouts: Path, name: str, folder: Path, suffix: str = "jsonl") -> Path:
    target = folder / f"out.{suffix}"
    export([rollouts], target, name)
    return target


def loaded(path: Path, tmp_path: Path, kind: str = "json") -> Any:
    cache = str(tmp_path / "cache")
    return datasets.load_dataset(kind, data_files=str(path), cache_dir=cache)["train"]


LINES = [name for name, form in FORMATS.items() if form.pack is None]


@pytest.mark.parametrize("name", LINES)
def test_datasets_reads_every_format_of_json_lines(
    rollouts: Path, tmp_path: Path, name: str
) -> None:
    path = exported(rollouts, name, tmp_path)
    assert len(loaded(path, tmp_path)) == len(read_records(path)) > 0


def test_arguments_and_tools_come_back_as_they_were(rollouts: Path, tmp_path: Path) -> None:
    (right, *_) = loaded(exported(rollouts, "sft", tmp_path), tmp_path)
    tools = json.loads(right["tools"])
    assert [one["function"]["parameters"] for one in tools] == [one["parameters"] for one in TOOLS]
    arguments = right["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert arguments == {"left": 0, "right": 3}


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_tables_have_exact_tokens_in_typed_columns(
    rollouts: Path, tmp_path: Path, kind: str
) -> None:
    path = exported(rollouts, kind, tmp_path, kind)
    if kind == "parquet":
        table = pyarrow.parquet.read_table(path)
        again = loaded(path, tmp_path, "parquet")
    else:
        with pyarrow.ipc.open_stream(path) as stream:
            table = stream.read_all()
        again = datasets.Dataset.from_file(str(path))
    assert str(table.schema.field("samples").type) == (
        "list<element: struct<input_ids: list<element: int32>, mask: list<element: int8>, "
        "logprobs: list<element: float>>>"
    ).replace("element", "element" if kind == "parquet" else "item")
    assert table.column("reward").to_pylist() == [1.0, 0.0] * 4
    assert table.column("weights_versions").to_pylist() == [[7]] * 8
    first = again[0]
    assert first["samples"][0]["input_ids"] == IDS
    assert first["samples"][0]["mask"] == MASK
    assert json.loads(first["task"])["expected_answer"] == "3"
    assert first["messages"][2]["reasoning_content"] == "I add."


def test_a_folder_loads_by_configuration_and_split(tmp_path: Path) -> None:
    folder = tmp_path / "sums"
    export_hub([rollout_file(tmp_path, tasks=12)], folder, test=0.5)
    seen = set[str]()
    for config in ("rollouts", "sft", "dpo"):
        data = datasets.load_dataset(str(folder), config, cache_dir=str(tmp_path / "cache"))
        assert set(data) == {"train", "test"}
        if config == "rollouts":
            sides = [set(data[split]["task_id"]) for split in data]
            assert not sides[0] & sides[1]
            seen = sides[0] | sides[1]
            assert sum(map(len, data.values())) == 24
        if config == "dpo":
            assert data["train"][0]["chosen_reward"] == 1.0
    assert seen == {f"sums/{one}" for one in range(12)}


def test_harbor_takes_every_trajectory(rollouts: Path, tmp_path: Path) -> None:
    path = exported(rollouts, "atif", tmp_path)
    validator = TrajectoryValidator()
    found = []
    for line in path.read_text().splitlines():
        assert validator.validate(json.loads(line)), validator.errors
        found.append(Trajectory.model_validate_json(line))
    right = found[0]
    assert right.schema_version == "ATIF-v1.8"
    assert [step.source for step in right.steps] == ["system", "user", "agent", "agent"]
    asked = right.steps[2]
    assert asked.reasoning_content == "I add."
    assert asked.tool_calls[0].arguments == {"left": 0, "right": 3}
    assert asked.observation.results[0].source_call_id == asked.tool_calls[0].tool_call_id
    assert asked.metrics.prompt_token_ids == [10, 11, 12]
    assert asked.metrics.completion_token_ids == [20, 21]
    assert asked.metrics.logprobs == [-0.25, -0.5]
    assert right.extra["reward"] == 1.0
    # What was no JSON is not lost.
    wrong = found[1].steps[2].tool_calls[0]
    assert (wrong.arguments, wrong.extra) == ({}, {"arguments_text": '{"query": '})


def test_inspect_reads_its_log(rollouts: Path, tmp_path: Path) -> None:
    path = exported(rollouts, "inspect", tmp_path, "eval")
    log = read_eval_log(str(path))
    assert log.status == "success"
    assert log.eval.dataset.sample_ids == [f"sums/{one}" for one in range(4)]
    assert log.results.scores[0].metrics["mean"].value == 0.5
    assert {(one.id, one.epoch) for one in log.samples} == {
        (f"sums/{task}", epoch) for task in range(4) for epoch in (1, 2)
    }
    sample = read_eval_log_sample(str(path), id="sums/0", epoch=1)
    assert sample.target == "3"
    assert sample.scores["reward"].value == 1.0
    assert sample.scores["exact"].value == 1.0
    assert [one.role for one in sample.messages] == [
        "system", "user", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert sample.messages[2].tool_calls[0].arguments == {"left": 0, "right": 3}
    assert sample.messages[2].content[0].reasoning == "I add."
    assert sample.metadata["tokens"][0]["input_ids"] == IDS
    assert sample.metadata["tokens"][0]["mask"] == MASK
    wrong = read_eval_log_sample(str(path), id="sums/0", epoch=2)
    assert wrong.messages[2].tool_calls[0].parse_error
    assert len(read_eval_log_sample_summaries(str(path))) == 8
    assert len(read_eval_log(str(path), header_only=True).eval.dataset.sample_ids) == 4


def test_masks_are_those_of_the_sampled_ids(rollouts: Path, tmp_path: Path) -> None:
    records = loaded(exported(rollouts, "tokens", tmp_path), tmp_path)
    made = [one for rollout in read_rollouts([rollouts]) for one in samples_of(rollout)]
    # A wrong rollout's second call does not go on from its first, so it makes two samples.
    assert len(records) == len(made) == 4 + 4 * 2
    for record, sample in zip(records, made, strict=True):
        assert record["input_ids"] == sample.input_ids
        trained = [one for one in record["labels"] if one != -100]
        sampled = zip(sample.input_ids, sample.mask, strict=True)
        assert trained == [one for one, on in sampled if on]


@pytest.mark.parametrize("suffix", ["eval", "json"])
def test_a_log_that_inspect_wrote_is_imported(tmp_path: Path, suffix: str) -> None:
    call = ToolCall(id="c1", function="add", arguments={"left": 2})
    sample = EvalSample(
        id="sum-1",
        epoch=2,
        input="2 + 3?",
        target="5",
        messages=[
            ChatMessageUser(content="2 + 3?"),
            ChatMessageAssistant(content="I add.", tool_calls=[call]),
            ChatMessageTool(content="5", tool_call_id="c1", function="add"),
            ChatMessageAssistant(content="It is 5. " * 5000),
        ],
        output=ModelOutput.from_content("policy", "It is 5."),
        scores={"match": Score(value="C", explanation="equal")},
    )
    spec = EvalSpec(
        created="2026-11-01T00:00:00+00:00",
        task="sums",
        dataset=EvalDataset(name="sums", samples=1, sample_ids=["sum-1"]),
        model="policy",
        config=EvalConfig(epochs=2),
    )
    path = tmp_path / f"log.{suffix}"
    write_eval_log(EvalLog(status="success", eval=spec, samples=[sample]), str(path))
    out = tmp_path / "rollouts.jsonl"
    import_file([path], out, "inspect", Imports(made="rollouts", environment="sums"))
    (rollout,) = read_rollouts([out])
    assert (rollout.task_id, rollout.repeat_index, rollout.reward) == ("sum-1", 1, 1.0)
    assert [one["type"] for one in rollout.output] == [
        "message", "function_call", "function_call_output", "message",
    ]  # fmt: skip
    assert rollout.row["response"]["model"] == "policy"
    assert rollout.row["expected_answer"] == "5"
