"""Files of other programs as tasks and as rollouts; what cannot be taken is named."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from msgspec import UNSET

from gymmesh_client import UserError
from gymmesh_client.tasks import TaskDefaults, TaskReader
from gymmesh_client.tasks.reader import TaskRow
from gymmesh_data import conversation_of, export, read_rollouts
from gymmesh_data.imports import Columns, Imports, ImportSummary, import_file
from gymmesh_rows import Row, read_row
from tests.support.cli import run
from tests.unit.data.rows import call, read_records, result, row, text, write_rows

Json = dict[str, Any]


def imported(
    tmp_path: Path, name: str, rows: list[Json] | Path, **options: Any
) -> tuple[list[Json], ImportSummary]:
    source = rows if isinstance(rows, Path) else write_rows(tmp_path / "in.jsonl", rows)
    out = tmp_path / "out.jsonl"
    summary = import_file([source], out, name, Imports(**options), overwrite=True)
    records = read_records(out)
    assert len(records) == summary.records
    if options.get("made") != "rollouts":
        reader = TaskReader(TaskDefaults("any", "any"))
        assert all(isinstance(one, TaskRow) for one in reader.read(out))
    return records, summary


def user(said: str) -> Json:
    return {"type": "message", "role": "user", "content": said}


def test_a_data_set_by_its_usual_columns(tmp_path: Path) -> None:
    records, summary = imported(
        tmp_path,
        "hf",
        [
            {"question": "2 + 3?", "answer": "5", "level": 1},
            {"question": "2 + 3?", "answer": "5", "level": 1},
        ],
        environment="math",
    )
    assert records == [
        {
            "environment": "math",
            "responses_create_params": {"input": [user("2 + 3?")]},
            "level": 1,
            "expected_answer": "5",
        }
    ]
    assert summary.repeated == 1


def test_a_data_set_by_named_columns(tmp_path: Path) -> None:
    names = {"input": "q.text", "system": "s", "gold": "a", "task_id": "n"}
    rows = [{"q": {"text": "2 + 3?"}, "s": "Be brief.", "a": 5, "n": 7, "other": 1}]
    records, _ = imported(tmp_path, "hf", rows, columns=Columns(names, only=True))
    assert records == [
        {
            "task_id": 7,
            "responses_create_params": {
                "input": [
                    {"type": "message", "role": "system", "content": "Be brief."},
                    user("2 + 3?"),
                ]
            },
            "gold": 5,
        }
    ]


def test_parquet_json_and_folders(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    (folder / "data").mkdir(parents=True)
    table = pyarrow.table({"prompt": [[{"role": "user", "content": "a?"}]], "answer": ["1"]})
    pyarrow.parquet.write_table(table, folder / "data" / "train.parquet")
    (folder / "more.json").write_text(json.dumps({"data": [{"prompt": "b?", "answer": "2"}]}))
    (folder / "README.md").write_text("no data")
    records, _ = imported(tmp_path, "hf", folder)
    assert [one["expected_answer"] for one in records] == ["1", "2"]
    assert records[0]["responses_create_params"]["input"] == [user("a?")]


TURNS = [
    call("add", '{"left": 2}', "c1"),
    result("c1", "5"),
    text("5"),
]


def test_what_was_exported_as_messages_comes_back(tmp_path: Path) -> None:
    tool = {"type": "function", "name": "add", "parameters": {"type": "object"}}
    rows = [
        row(*TURNS, params={"tools": [tool]}, tags={"level": "easy"}),
        row(text("6"), repeat=1, reward=0.0, params={"tools": [tool]}),
        row(text("?"), task="sum-2", reward=None),
    ]
    source = write_rows(tmp_path / "rows.jsonl", rows)
    export([source], tmp_path / "messages.jsonl", "messages")
    records, _ = imported(tmp_path, "messages", tmp_path / "messages.jsonl", made="rollouts")
    before, after = list(read_rollouts([source])), list(read_rollouts([tmp_path / "out.jsonl"]))
    for one, other in zip(before, after, strict=True):
        assert conversation_of(other).messages == conversation_of(one).messages
        assert conversation_of(other).prompt_length == conversation_of(one).prompt_length
        assert conversation_of(other).tools == conversation_of(one).tools
        assert (other.task_id, other.repeat_index, other.reward, other.environment) == (
            one.task_id,
            one.repeat_index,
            one.reward,
            one.environment,
        )
    assert records[0]["tags"] == {"level": "easy"}
    assert records[0]["metadata"]["steps_taken"] == 2
    assert [one["verification"]["status"] for one in records] == ["VERIFIED", "VERIFIED", "SKIPPED"]
    tasks, summary = imported(tmp_path, "messages", tmp_path / "messages.jsonl")
    assert [one["task_id"] for one in tasks] == ["sum-1", "sum-2"]
    assert summary.repeated == 1


def test_what_messages_say_of_tools_and_actors_is_not_the_tasks(tmp_path: Path) -> None:
    outcomes = [{"name": "add", "outcome": "TOOL_ERROR", "calls": 1}]
    critic = {"name": "critic", "trainable": True, "conversations": [{"items": [text("no")]}]}
    debate = row(*TURNS, metadata={"tool_outcomes": outcomes}, actors=[critic])
    source = write_rows(tmp_path / "rows.jsonl", [debate])
    export([source], tmp_path / "messages.jsonl", "messages")
    (told,) = read_records(tmp_path / "messages.jsonl")
    assert (told["metadata"]["tool_outcomes"], told["actors"][0]["name"]) == (outcomes, "critic")
    (task,), _ = imported(tmp_path, "messages", tmp_path / "messages.jsonl")
    assert not {"metadata", "actors"} & task.keys()
    # A column of that name which no export wrote is the task's.
    films = [{"prompt": "Who plays?", "actors": ["Ann"]}, {"prompt": "And here?", "actors": []}]
    tasks, _ = imported(tmp_path, "messages", films)
    assert [one["actors"] for one in tasks] == [["Ann"], []]


def test_a_prompt_and_a_completion(tmp_path: Path) -> None:
    rows = [{"prompt": "2 + 3?", "completion": "5", "reward": 1, "level": "easy"}]
    (record,), _ = imported(tmp_path, "messages", rows, made="rollouts", environment="sums")
    assert record["responses_create_params"]["input"] == [user("2 + 3?")]
    assert record["response"]["output"][0]["content"][0]["text"] == "5"
    assert (record["reward"], record["level"], record["environment"]) == (1.0, "easy", "sums")
    (task,), _ = imported(tmp_path, "messages", rows)
    assert "reference_answer" not in task  # it was judged: an answer, not a demonstration
    (task,), _ = imported(tmp_path, "messages", [{"prompt": "2 + 3?", "completion": "5"}])
    assert task["reference_answer"] == "5"


def test_what_messages_have_beside_is_not_lost(tmp_path: Path) -> None:
    asked = [{"role": "user", "content": "2 + 3?"}]
    answered = [*asked, {"role": "assistant", "content": "5"}]
    rows: list[Json] = [
        {"messages": asked, "completion": "5", "metadata": {"task_id": "a", "level": "hard"}},
        {"messages": answered, "response": "6", "metadata": "mine"},
    ]
    records, _ = imported(tmp_path, "messages", rows, made="rollouts")
    for record in records:
        (said,) = record["response"]["output"]
        assert said["content"][0]["text"] == "5"
    assert (records[0]["task_id"], records[0]["metadata"]["level"]) == ("a", "hard")
    assert "completion" not in records[0]
    # What the conversation did not take is the task's, as any other key.
    assert records[1]["task_extras"] == {"metadata": "mine", "response": "6"}
    tasks, _ = imported(tmp_path, "messages", rows)
    assert (tasks[0]["metadata"], tasks[0]["reference_answer"]) == ({"level": "hard"}, "5")
    assert (tasks[1]["metadata"], tasks[1]["response"]) == ("mine", "6")


def test_a_rollout_is_imported_as_a_collector_writes_it(tmp_path: Path) -> None:
    found: Json = {
        "prompt": [{"role": "user", "content": "2 + 3?"}],
        "completion": [
            {"role": "assistant", "tool_calls": [
                {"id": "c1", "function": {"name": "add", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "5"},
            {"role": "assistant", "content": "5"},
        ],
        "reward": 1.0,
        "agent": {"of": "theirs"},
        "metadata": {"level": "hard", "seed": "s", "timings": 3},
    }  # fmt: skip
    (record,), _ = imported(tmp_path, "messages", [found], made="rollouts", environment="sums")
    (line,) = (tmp_path / "out.jsonl").read_bytes().splitlines()
    row = msgspec.json.decode(line, type=Row)  # every column is there, and of its type
    assert not read_row(line).of_earlier_form
    parts = [(call.first_item, call.answer_count, call.item_count) for call in row.calls]
    assert parts == [(0, 1, 2), (2, 1, 1)]
    assert (row.agent, record["metadata"]["level"]) == ("", "hard")
    assert (row.metadata.seed, row.metadata.timings.model_us) == (UNSET, 0)
    assert record["task_extras"] == {
        "agent": {"of": "theirs"},
        "metadata": {"seed": "s", "timings": 3},
    }


def test_a_column_that_rows_use_themselves_says_nothing_of_the_rollout(tmp_path: Path) -> None:
    found = {"prompt": "2 + 3?", "completion": "5", "reward": 1.0, "failure": "none", "run_id": 7}
    (record,), _ = imported(tmp_path, "messages", [found], made="rollouts")
    assert record["task_extras"] == {"failure": "none", "run_id": 7}
    (rollout,) = read_rollouts([tmp_path / "out.jsonl"])
    assert not rollout.failed


@pytest.mark.parametrize("reward", ['"0.5"', "[1]", "1" + 400 * "0"])
@pytest.mark.parametrize("name", ["messages", "verifiers"])
def test_a_reward_that_is_no_number_is_not_taken_for_none(
    tmp_path: Path, name: str, reward: str
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(f'{{"prompt": "2 + 3?", "completion": "5", "reward": {reward}}}\n')
    with pytest.raises(UserError, match=r"in.jsonl:1: reward: must be a finite number or null"):
        imported(tmp_path, name, source, made="rollouts")


def test_numbers_that_a_table_lacks_are_none(tmp_path: Path) -> None:
    lacking = {"task_id": ["a", "b"], "prompt": 2 * ["2 + 3?"], "completion": 2 * ["5"]}
    source = tmp_path / "rows.parquet"
    numbers = {"reward": [float("nan"), 0.5], "level": [[1.0], [float("nan"), 2.0]]}
    pyarrow.parquet.write_table(pyarrow.table(lacking | numbers), source)
    records, _ = imported(tmp_path, "messages", source, made="rollouts")
    assert [one["reward"] for one in records] == [None, 0.5]
    assert [one["verification"]["status"] for one in records] == ["SKIPPED", "VERIFIED"]
    assert [one["metadata"]["verified"] for one in records] == [False, True]
    assert records[1]["level"] == [None, 2.0]
    infinite = {"level": [1.0, float("inf")]}
    pyarrow.parquet.write_table(pyarrow.table(lacking | infinite), source)
    with pytest.raises(UserError, match="row 1: is not JSON: inf is not a JSON number"):
        imported(tmp_path, "messages", source)


def test_openai_evals(tmp_path: Path) -> None:
    rows: list[Json] = [
        {"item": {"input": [{"role": "user", "content": "2 + 3?"}], "ideal": "5", "level": 1}},
        {"input": [{"role": "user", "content": "2 + 4?"}], "ideal": "6"},
    ]
    records, _ = imported(tmp_path, "openai-evals", rows)
    assert [one["expected_answer"] for one in records] == ["5", "6"]
    sampled = {
        "datasource_item": {"question": "2 + 3?", "answer": "5"},
        "sample": {
            "input": [{"role": "system", "content": "Add."}, {"role": "user", "content": "2 + 3?"}],
            "output": [{"role": "assistant", "content": "5"}],
            "model": "m",
            "finish_reason": "length",
        },
        "results": [{"name": "exact", "passed": True, "score": 1.0}],
    }
    (record,), _ = imported(tmp_path, "openai-evals", [sampled], made="rollouts")
    assert record["reward"] == 1.0
    assert record["stop_reason"] == "MAX_OUTPUT_TOKENS"
    assert len(record["responses_create_params"]["input"]) == 2


def test_verifiers(tmp_path: Path) -> None:
    tool_call = json.dumps(
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"left": 2}'}}
    )
    one = {
        "example_id": 3,
        "task": "sums",
        "prompt": [{"role": "user", "content": "2 + 3?"}],
        "completion": [
            {"role": "assistant", "content": None, "tool_calls": [tool_call]},
            {"role": "tool", "tool_call_id": "c1", "content": "5"},
            {"role": "assistant", "content": "5"},
        ],
        "answer": "5",
        "reward": 0.75,
        "metrics": {"format": 1.0, "exact": 0.5},
    }
    records, _ = imported(tmp_path, "verifiers", [one, one], made="rollouts")
    assert [(r["task_id"], r["repeat_index"]) for r in records] == [("sums/3", 0), ("sums/3", 1)]
    assert records[0]["reward"] == 0.75
    assert records[0]["verification"]["components"] == [
        {"name": "format", "value": 1.0},
        {"name": "exact", "value": 0.5},
    ]
    assert records[0]["response"]["output"][0]["arguments"] == '{"left": 2}'
    (task,), summary = imported(tmp_path, "verifiers", [one, one])
    assert (task["expected_answer"], summary.repeated) == ("5", 1)


def sample(**more: Any) -> Json:
    return {
        "id": "sum-1",
        "epoch": 2,
        "input": "2 + 3?",
        "target": "5",
        "messages": [
            {"role": "user", "content": "2 + 3?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "reasoning", "reasoning": "Add."},
                    {"type": "text", "text": "x"},
                ],
                "tool_calls": [{"id": "c1", "function": "add", "arguments": {"left": 2}}],
            },
            {"role": "tool", "tool_call_id": "c1", "function": "add", "content": "attachment://h"},
            {"role": "assistant", "content": "5"},
        ],
        "attachments": {"h": "five"},
        "scores": {"match": {"value": "C", "explanation": "equal"}},
        "output": {"model": "m", "choices": [{"stop_reason": "stop"}]},
        **more,
    }


def test_inspect(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    log.write_text(json.dumps({"version": 2, "samples": [sample()]}))
    (record,), _ = imported(tmp_path, "inspect", log, made="rollouts")
    assert (record["task_id"], record["repeat_index"], record["reward"]) == ("sum-1", 1, 1.0)
    assert [one["type"] for one in record["response"]["output"]] == [
        "reasoning", "message", "function_call", "function_call_output", "message",
    ]  # fmt: skip
    assert record["response"]["output"][3]["output"] == "five"
    assert record["verification"]["reason"] == "equal"
    (task,), _ = imported(tmp_path, "inspect", log)
    assert task["expected_answer"] == "5"


@pytest.mark.parametrize("compressed", [True, False])
def test_an_archive_of_inspect(tmp_path: Path, compressed: bool) -> None:
    content = json.dumps(sample()).encode()
    path = tmp_path / "log.eval"
    if compressed:
        _write_zstd(path, "samples/sum-1_epoch_2.json", content)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("samples/sum-1_epoch_2.json", content)
            archive.writestr("header.json", "{}")
    (record,), _ = imported(tmp_path, "inspect", path, made="rollouts")
    assert record["reward"] == 1.0
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UserError, match="not a readable zip archive"):
        imported(tmp_path, "inspect", path)


def _write_zstd(path: Path, name: str, content: bytes) -> None:
    """A zip archive with a member of two frames of zstd, as Inspect writes large ones."""
    half = len(content) // 2
    compress = zstandard.ZstdCompressor().compress
    data = compress(content[:half]) + compress(content[half:])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, data)
        info = archive.infolist()[0]
        info.compress_type, info.CRC, info.file_size = 93, zlib.crc32(content), len(content)


def test_what_was_exported_for_inspect_comes_back(tmp_path: Path) -> None:
    rows = [row(*TURNS), row(text("6"), repeat=1, reward=0.0)]
    source = write_rows(tmp_path / "rows.jsonl", rows)
    export([source], tmp_path / "log.eval", "inspect")
    imported(tmp_path, "inspect", tmp_path / "log.eval", made="rollouts")
    before, after = list(read_rollouts([source])), list(read_rollouts([tmp_path / "out.jsonl"]))
    for one, other in zip(before, after, strict=True):
        assert conversation_of(other).messages[-1] == conversation_of(one).messages[-1]
        assert (other.task_id, other.repeat_index, other.reward, other.stop_reason) == (
            one.task_id,
            one.repeat_index,
            one.reward,
            one.stop_reason,
        )


WRONG: list[tuple[str, Any, str]] = [
    ("hf", {"text": "x"}, r"in\.jsonl:2: has no known prompt column\. .*--column"),
    ("hf", {"question": None}, r":2: question: the prompt is null"),
    ("hf", {"id": 3, "question": " "}, r":2: question: the prompt is empty"),
    ("messages", {"messages": [{"role": "user", "content": ""}]}, r":2: input: each user message"),
    (
        "messages",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": " "}]}]},
        r":2: input: each user message is empty",
    ),
    ("hf", {"prompt": 7}, r":2: prompt: must be a string or a list of messages"),
    ("hf", {"prompt": "x", "tags": ["a"]}, r":2: tags: must be an object"),
    ("messages", {"text": "x"}, r":2: has neither the key 'messages'"),
    ("messages", {"messages": [{"role": "bot"}]}, r":2: messages\[0\]\.role: must be"),
    (
        "messages",
        {"messages": [{"role": "system", "content": "x"}]},
        r":2: input: has no user message",
    ),
    ("messages", {"prompt": "x", "tools": "["}, r":2: tools: not JSON"),
    ("verifiers", {"prompt": "x"}, r":2: lacks the key 'prompt' or 'completion'"),
    (
        "verifiers",
        {"prompt": "x", "completion": "y", "error": "boom"},
        r":2: this rollout failed in the library `verifiers`",
    ),
    ("inspect", {"id": 1}, r":2: lacks the key 'id' or 'input'"),
    ("inspect", sample(error={"message": "boom"}), r":2: this sample failed in Inspect: boom"),
    (
        "inspect",
        sample(scores={"a": {"value": 1}, "b": {"value": 0}}),
        r":2: has several scores\. .*--score a\|b",
    ),
    ("messages", [], r":2: must be a JSON object"),
]
RIGHT: dict[str, Json] = {
    "hf": {"prompt": "x"},
    "messages": {"prompt": "x"},
    "verifiers": {"prompt": "x", "completion": "y", "reward": 1},
    "inspect": sample(id="other"),
}


@pytest.mark.parametrize(("name", "wrong", "words"), WRONG)
def test_a_row_that_cannot_be_taken_is_named(
    tmp_path: Path, name: str, wrong: Any, words: str
) -> None:
    rows = [RIGHT[name], wrong]
    with pytest.raises(UserError, match=words) as raised:
        imported(tmp_path, name, rows)
    assert str(raised.value).endswith("To skip invalid rows, add --skip-invalid")
    assert not (tmp_path / "out.jsonl").exists()
    records, summary = imported(tmp_path, name, rows, skip_invalid=True)
    assert (len(records), summary.refused, summary.rows) == (1, 1, 2)
    (skipped,) = read_records(tmp_path / "out.skipped.jsonl")
    assert skipped["place"].endswith("in.jsonl:2")
    assert skipped["reason"] in summary.problems[0]
    imported(tmp_path, name, rows[:1])
    assert not (tmp_path / "out.skipped.jsonl").exists()


def test_a_line_that_is_no_json_is_a_row_that_cannot_be_taken(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"prompt": "x"}\n{"prompt": \n')
    _, summary = imported(tmp_path, "hf", source, skip_invalid=True)
    assert summary.refused == 1
    assert "in.jsonl:2: is not valid JSON at column" in summary.problems[0]


def test_a_column_without_a_value_is_not_the_prompt(tmp_path: Path) -> None:
    rows: list[Json] = [{"input": "", "instruction": "Add."}, {"prompt": None, "question": "Why?"}]
    records, _ = imported(tmp_path, "hf", rows)
    assert [one["responses_create_params"]["input"] for one in records] == [
        [user("Add.")],
        [user("Why?")],
    ]


@pytest.mark.parametrize("name", ["hf", "known"])
@pytest.mark.parametrize("sign", [";", "\t"])
def test_a_table_that_is_not_separated_by_commas_says_so(
    tmp_path: Path, name: str, sign: str
) -> None:
    source = tmp_path / "in.csv"
    source.write_text("\n".join(sign.join(row) for row in (("id", "question"), ("1", "Hi?"))))
    words = f"in.csv:1: has one column, .* separated by {sign!r}. Write the file with commas"
    with pytest.raises(UserError, match=re.escape(words).replace(r"\.\*", ".*")):
        imported(tmp_path, name, source)


def test_nothing_is_written_over(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", [{"prompt": "x"}])
    with pytest.raises(UserError, match="would be overwritten"):
        import_file([source], source, "hf", overwrite=True)
    out = tmp_path / "out.jsonl"
    out.write_text("mine\n")
    with pytest.raises(UserError, match="already exists"):
        import_file([source], out, "hf")
    with pytest.raises(UserError, match="cannot be written"):
        import_file([source], Path("/dev/full/out.jsonl"), "hf")
    assert out.read_text() == "mine\n"


def test_the_command_has_every_format() -> None:
    from gymmesh_cli.stored import importing
    from gymmesh_data.imports import IMPORT_FORMATS, KNOWN

    assert [KNOWN, *IMPORT_FORMATS] == list(importing._FORMATS)


def test_the_command_says_what_the_page_shows(tmp_path: Path) -> None:
    """docs/how-to/import.md shows this on standard error, which no page's run compares."""
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "import.md").read_text()
    write_rows(tmp_path / "mixed.jsonl", [{"prompt": "x", "answer": "5"}, {"text": "no prompt"}])
    command = ["import", "mixed.jsonl", "--format", "hf", "--output", "tasks.jsonl"]
    done = run(*command, cwd=tmp_path)
    assert done.code == 1
    assert done.err.strip() in page
    done = run(*command, "--skip-invalid", cwd=tmp_path)
    assert done.code == 3
    assert "skipped       invalid rows: 1" in done.out
