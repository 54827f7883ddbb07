"""What each trainer's and tool's format says of a rollout, and that nothing goes missing unsaid.

The frameworks' own loaders read these in tests/handoff.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow.ipc
import pyarrow.parquet
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gymmesh_client import UserError
from gymmesh_data import (
    FORMATS,
    ExportOptions,
    Selection,
    export,
    export_hub,
    task_of,
)
from tests.handoff.rollouts import TOOLS, rollout_file, rows
from tests.unit.data.rows import call, read_records, result, row, text, write_rows

Json = dict[str, Any]


def exported(
    tmp_path: Path, name: str, found: list[Json] | None = None, **options: Any
) -> tuple[list[Json], Json]:
    source = write_rows(tmp_path / "rows.jsonl", rows() if found is None else found)
    out = tmp_path / f"out.{name}"
    summary = export([source], out, name, ExportOptions(**options), overwrite=True)
    records = read_records(out) if FORMATS[name].pack is None else []
    return records, summary.to_dict()


def test_the_task_comes_back_as_it_was() -> None:
    (right, *_) = read_rollouts_of(rows(1, 1))
    assert task_of(right) == {
        "task_id": "sums/0",
        "responses_create_params": rows(1, 1)[0]["responses_create_params"],
        "environment": "sums",
        "agent": "tool_loop",
        "tags": {"level": "easy"},
        "expected_answer": "3",
    }
    odd = row(
        text("x"),
        metadata={"steps_taken": 1, "source": "mine"},
        task_extras={"metadata": {"seed": "s"}, "reward": 7},
    )
    (rollout,) = read_rollouts_of([odd])
    task = task_of(rollout)
    assert (task["metadata"], task["reward"]) == ({"source": "mine", "seed": "s"}, 7)


def read_rollouts_of(found: list[Json]) -> list[Any]:
    from gymmesh_data import stored_rollout

    return [stored_rollout(one, "rows.jsonl:1") for one in found]


@pytest.mark.parametrize("name", ["trl", "verl", "nemo-rl", "openrlhf"])
def test_a_task_is_one_record_with_how_its_rollouts_fared(tmp_path: Path, name: str) -> None:
    found = rows(2, 3)
    unjudged = row(text("?"), task="sums/0", repeat=9, reward=None)
    found.append(unjudged | {"responses_create_params": found[0]["responses_create_params"]})
    records, summary = exported(tmp_path, name, found)
    assert len(records) == 2
    assert summary["losses"]["token ids of rollouts"] == 6
    record = records[0]
    if name == "nemo-rl":
        assert record["agent_ref"] == {"type": "responses_api_agents", "name": "gymmesh_agent"}
        assert record["responses_create_params"]["tools"] == TOOLS
        return
    told = record["extra_info"] if name == "verl" else record
    # Not judged counts for the rollouts, and not for their mean.
    assert told["rollouts"] == 4
    assert told["mean_reward"] == pytest.approx(1 / 3)
    task = told["label" if name == "openrlhf" else "task"]
    assert json.loads(task)["expected_answer"] == "3"
    prompt = record["input" if name == "openrlhf" else "prompt"]
    assert [one["role"] for one in prompt] == ["system", "user"]
    if name == "verl":
        assert record["reward_model"]["ground_truth"] == "3"
    if name != "trl":
        assert (
            summary["losses"]["tool definitions of tasks (this trainer configures tools itself)"]
            == 2
        )


def test_the_agent_of_tasks_can_be_named(tmp_path: Path) -> None:
    records, _ = exported(tmp_path, "verl", agent="mine")
    assert {one["agent_name"] for one in records} == {"mine"}
    records, _ = exported(tmp_path, "nemo-rl", agent="mine")
    assert {one["agent_ref"]["name"] for one in records} == {"mine"}


def test_tokens_that_a_format_has_no_place_for_are_counted(tmp_path: Path) -> None:
    for name, form in FORMATS.items():
        _, summary = exported(tmp_path, name)
        told = "token ids of rollouts" in summary["losses"]
        assert told == (form.tokens.name == "NONE"), name


def test_parquet_and_arrow_hold_the_same(tmp_path: Path) -> None:
    exported(tmp_path, "parquet")
    exported(tmp_path, "arrow")
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    with pyarrow.ipc.open_stream(tmp_path / "out.arrow") as stream:
        assert stream.read_all().to_pylist() == table.to_pylist()
    first = table.to_pylist()[0]
    assert first["samples"][0]["input_ids"] == [10, 11, 12, 20, 21, 30, 31, 40, 41, 2]
    assert first["samples"][0]["mask"] == [0, 0, 0, 1, 1, 0, 0, 1, 1, 1]
    assert first["weights_versions"] == [7]
    assert first["started_at"] == 1795276216.25
    assert json.loads(first["tools"])[0]["function"]["name"] == "add"
    exported(tmp_path, "parquet", tokens=False)
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()[0]["samples"] == []


def test_what_a_table_cannot_hold_is_said(tmp_path: Path) -> None:
    image = {"type": "input_image", "image_url": "https://example.org/a.png"}
    found = [
        row(text("\ud800 é"), task="odd", attempt="first"),
        row(text("5"), prompt=[{"role": "user", "content": [image]}], attempt=2),
    ]
    _, summary = exported(tmp_path, "parquet", found)
    assert summary["losses"] == {
        "values that are not of their column's type": 1,
        "records with unpaired surrogates (replaced by replacement characters)": 1,
    }
    first, second = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert first["messages"][-1]["content"] == "\ufffd é"
    assert (first["attempt"], second["attempt"]) == (None, 2)
    assert json.loads(second["messages"][0]["parts"])[0]["type"] == "image_url"
    large = {"prompt_token_ids": [2**40], "generation_token_ids": [1], "generation_log_probs": [0]}
    with pytest.raises(UserError, match=r"prompt_token_ids: has a number that is not a token id"):
        exported(tmp_path, "parquet", [row(text("x", **large))])


def test_tools_that_no_column_can_hold_are_counted(tmp_path: Path) -> None:
    def tools(kind: Any) -> Json:
        return {"tools": [{"type": "function", "name": "f", "parameters": {"type": kind}}]}

    found = [
        row(text("a"), params=tools("object")),
        row(text("b"), params=tools(["object", "null"])),
        row(text("c")),
    ]
    _, summary = exported(tmp_path, "verl-sft", found)
    assert summary["losses"] == {
        "tools that don't fit into one column with the tools of other tasks": 1
    }
    table = pyarrow.parquet.read_table(tmp_path / "out.verl-sft").to_pylist()
    assert [one["tools"] is None for one in table] == [False, True, True]
    arguments = [row(call("f", '{"a": 1}', "c1"), result("c1", "x"), text("y"))]
    exported(tmp_path, "verl-sft", arguments)
    (record,) = pyarrow.parquet.read_table(tmp_path / "out.verl-sft").to_pylist()
    assert record["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'


def test_atif(tmp_path: Path) -> None:
    prompt = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "2 + 3?"},
    ]
    found = [row(text("5"), result("lost", "late"), prompt=prompt), *rows(1, 1)]
    records, _ = exported(tmp_path, "atif", found)
    steps = records[0]["steps"]
    assert [one.get("is_copied_context") for one in steps] == [None, True, None, None]
    # A result that no call of the rollout asked for keeps its place and its id.
    assert steps[3]["observation"]["results"] == [
        {"content": "late", "extra": {"tool_call_id": "lost"}}
    ]
    assert records[1]["extra"]["weights_versions"] == [7]
    assert records[1]["extra"]["verification"]["reason"] == "as expected"
    plain, _ = exported(tmp_path, "atif", rows(1, 1), tokens=False)
    assert "metrics" not in plain[0]["steps"][2]


@pytest.mark.parametrize("name", ["atif", "otel"])
def test_token_ids_that_are_null_are_none_and_others_are_named(tmp_path: Path, name: str) -> None:
    odd = row(text("5", prompt_token_ids=None, generation_token_ids=None))
    records, summary = exported(tmp_path, name, [odd])
    assert len(records) == 1
    assert "token ids that do not form one sequence" not in summary["losses"]
    odd = row(text("5", prompt_token_ids=[1], generation_token_ids="2"))
    with pytest.raises(UserError, match=r"generation_token_ids: must be a list of numbers"):
        exported(tmp_path, name, [odd])


def test_a_table_without_a_column_for_images_says_so(tmp_path: Path) -> None:
    image = {"type": "input_image", "image_url": "http://x/y.png"}
    prompt = [{"role": "user", "content": [{"type": "input_text", "text": "What?"}, image]}]
    _, summary = exported(tmp_path, "verl-sft", [row(text("5"), prompt=prompt), row(text("6"))])
    table = pyarrow.parquet.read_table(tmp_path / "out.verl-sft").to_pylist()
    assert [one["messages"][-1]["content"] for one in table] == ["6"]
    assert summary["losses"] == {"rollouts with images (this table has no column for them)": 1}


def test_otel_is_what_a_collector_reads(tmp_path: Path) -> None:
    records, summary = exported(tmp_path, "otel", rows(1, 1))
    request = json_format.Parse(json.dumps(records[0]), ExportTraceServiceRequest())
    spans = request.resource_spans[0].scope_spans[0].spans
    assert [one.name for one in spans] == [
        "invoke_agent tool_loop", "chat policy", "execute_tool add", "chat policy",
    ]  # fmt: skip
    assert {one.trace_id for one in spans} == {spans[0].trace_id}
    assert {one.parent_span_id for one in spans[1:]} == {spans[0].span_id}
    assert spans[0].end_time_unix_nano - spans[0].start_time_unix_nano == 1_500_000
    event = spans[0].events[0]
    assert {one.key: one.value for one in event.attributes}[
        "gen_ai.evaluation.score.value"
    ].double_value == 1.0
    chat = {one.key: one.value.string_value for one in spans[1].attributes}
    assert json.loads(chat["gymmesh.generation_token_ids"]) == [20, 21]
    # The second call's input is what is new since the first.
    later = {one.key: one.value.string_value for one in spans[3].attributes}
    assert [one["role"] for one in json.loads(later["gen_ai.input.messages"])] == ["tool"]
    assert summary["losses"] == {"times of single calls": 1}
    assert exported(tmp_path, "otel", rows(1, 1))[0] == records


def test_otel_has_each_calls_own_result(tmp_path: Path) -> None:
    """Some models give the same call_id in every answer."""
    made = [call("add", "{}", "c"), result("c", "5"), call("add", "{}", "c"), result("c", "7"),
            call("add", "{}", "c")]  # fmt: skip
    records, _ = exported(tmp_path, "otel", [row(*made)])
    request = json_format.Parse(json.dumps(records[0]), ExportTraceServiceRequest())
    told = [
        {one.key: one.value.string_value for one in span.attributes}
        for span in request.resource_spans[0].scope_spans[0].spans
        if span.name == "execute_tool add"
    ]
    assert [one.get("gen_ai.tool.call.result") for one in told] == ["5", "7", "null"]


def test_a_log_of_inspect_can_be_made_again(tmp_path: Path) -> None:
    exported(tmp_path, "inspect")
    made = (tmp_path / "out.inspect").read_bytes()
    exported(tmp_path, "inspect")
    assert (tmp_path / "out.inspect").read_bytes() == made
    # Ids are others': none leads out of the archive, and repeats of two runs stay apart.
    found = [row(text("a"), task="../../etc"), row(text("b"), task="../../etc")]
    exported(tmp_path, "inspect", found)
    with zipfile.ZipFile(tmp_path / "out.inspect") as archive:
        names = [one for one in archive.namelist() if one.startswith("samples/")]
        assert names == ["samples/__/__/etc_epoch_1.json", "samples/__/__/etc_epoch_2.json"]
        header = json.loads(archive.read("header.json"))
    assert header["results"]["scores"][0]["metrics"]["mean"]["value"] == 1.0


@pytest.mark.parametrize("name", ["parquet", "inspect"])
def test_a_packed_file_goes_on_where_it_was_interrupted(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = rollout_file(tmp_path)
    whole, out = tmp_path / "whole", tmp_path / "out"
    export([source], whole, name)
    with monkeypatch.context() as patch:
        patch.setattr("gymmesh_data.exports.writing.LineFile._pack", _out_of_space)
        with pytest.raises(UserError, match="cannot be written"):
            export([source], out, name)
    assert not out.exists()
    export([source], out, name, resume=True)
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out", "rollouts.jsonl", "whole"]


def _out_of_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_folder_for_the_hub(tmp_path: Path) -> None:
    source = rollout_file(tmp_path, tasks=12)
    folder = tmp_path / "sums"
    summary = export_hub([source], folder, test=0.5)
    assert summary.rollouts == 24
    card = (folder / "README.md").read_text()
    assert card.startswith("---\npretty_name: sums\n")
    sides = [
        {one["task_id"] for one in read_records(folder / "rollouts" / f"{split}.jsonl")}
        for split in ("train", "test")
    ]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 12
    # Demonstrations are worth imitating here, too.
    assert len(read_records(folder / "sft" / "train.jsonl")) == len(sides[0])
    with pytest.raises(UserError, match="replace it with --overwrite"):
        export_hub([source], folder)
    export_hub([source], folder, overwrite=True)
    assert not (folder / "sft" / "test.jsonl").exists()
    with pytest.raises(UserError, match="remove --resume"):
        export_hub([source], tmp_path / "new", resume=True)


def test_a_folder_never_replaces_what_it_reads_or_what_is_another_s(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    source = rollout_file(tmp_path)
    with pytest.raises(UserError, match=r"\(thesis.txt\), so --overwrite does not replace"):
        export_hub([source], folder, overwrite=True)
    (folder / "thesis.txt").rename(folder / "README.md")
    (folder / "sft").mkdir()
    inside = rollout_file(folder / "sft")
    with pytest.raises(UserError, match="holds inputs of the export"):
        export_hub([inside], folder, overwrite=True)
    assert (folder / "README.md").read_text() == "mine"


def test_records_of_the_same_rollouts_are_the_same(tmp_path: Path) -> None:
    options = ExportOptions(Selection(min_reward=1.0))
    for name in FORMATS:
        source = rollout_file(tmp_path)
        made = []
        for number in range(2):
            export([source], tmp_path / f"{number}", name, options, overwrite=True)
            made.append((tmp_path / f"{number}").read_bytes())
        assert made[0] == made[1], name
