"""Task files: NeMo's rows as they are, and a sentence for each mistake."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_client import TaskDefaults, TaskProblem, TaskReader, TaskRow, UserError
from gymmesh_client.tasks import TaskFile
from gymmesh_responses import loads, params_to_dict

READER = TaskReader(TaskDefaults("math", "tool_loop"), {"math", "sql"}, {"tool_loop"})
INPUT = {"input": [{"role": "user", "content": "hi"}]}


def read(path: Path, *rows: Any, reader: TaskReader = READER) -> list[TaskRow | TaskProblem]:
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return list(reader.read(path))


def test_a_nemo_row_goes_through_whole(tmp_path: Path) -> None:
    row = {
        "responses_create_params": {**INPUT, "temperature": 1.0, "user": None},
        "expected_answer": "5",
        "agent_ref": {"name": "simple_agent"},
        "id": 0,
    }
    (entry,) = read(tmp_path / "t.jsonl", row)
    assert isinstance(entry, TaskRow)
    task = entry.task
    assert params_to_dict(task.params) == row["responses_create_params"]
    assert loads(task.payload_json) == {
        "expected_answer": "5",
        "agent_ref": {"name": "simple_agent"},
        "id": 0,
    }
    assert (task.environment, task.agent) == ("math", "tool_loop")
    assert not task.HasField("seed")


@pytest.mark.parametrize(
    ("keys", "other"),
    [
        ({"agent_ref": {"name": "simple_agent"}}, "simple_agent"),
        ({"agent_ref": {"name": "tool_loop"}}, ""),
        ({"agent_ref": {"name": "gymmesh_agent"}}, ""),  # of our own exports: any agent
        ({"agent_ref": {"name": "simple_agent"}, "agent": "tool_loop"}, ""),  # chosen
        ({"agent_ref": {"name": 3}}, ""),
        ({"agent_ref": {}}, ""),
        ({"agent_ref": "simple_agent"}, ""),
        ({}, ""),
    ],
)
def test_a_row_that_names_another_agent_than_runs_it(
    tmp_path: Path, keys: dict[str, Any], other: str
) -> None:
    row = {"responses_create_params": INPUT, **keys}
    (entry,) = read(tmp_path / "t.jsonl", row)
    assert isinstance(entry, TaskRow)
    assert (entry.other_agent, entry.task.agent) == (other, "tool_loop")
    (entry,) = read(tmp_path / "t.jsonl", row, reader=replace(READER, refuse_other_agents=True))
    assert isinstance(entry, TaskProblem) == bool(other)
    if isinstance(entry, TaskProblem):
        assert entry.key == "agent_ref.name"


def test_own_keys_are_not_payload(tmp_path: Path) -> None:
    row = {
        "task_id": "a",
        "environment": "sql",
        "agent": "tool_loop",
        "seed": 0,
        "tags": {"split": "dev"},
        "responses_create_params": {"input": "hi"},
    }
    (entry,) = read(tmp_path / "t.jsonl", row)
    assert isinstance(entry, TaskRow)
    assert entry.task.payload_json == b"{}"
    assert (entry.task.task_id, entry.task.environment) == ("a", "sql")
    assert entry.task.HasField("seed")
    assert dict(entry.task.tags) == {"split": "dev"}


def test_ids_come_from_content(tmp_path: Path) -> None:
    row = {"responses_create_params": INPUT, "a": 1, "b": 2}
    turned = {"b": 2, "a": 1, "responses_create_params": INPUT}
    entries = read(tmp_path / "t.jsonl", row, turned, {**row, "a": 3})
    ids = [entry.task.task_id for entry in entries if isinstance(entry, TaskRow)]
    assert len(set(ids)) == 3
    assert ids[1] == f"{ids[0]}-2"
    again = read(tmp_path / "u.jsonl", turned)
    assert isinstance(again[0], TaskRow)
    assert again[0].task.task_id == ids[0]


def params(**keys: Any) -> dict[str, Any]:
    return {"responses_create_params": {**INPUT, **keys}}


def function(**keys: Any) -> dict[str, Any]:
    return {"type": "function", "name": "f", **keys}


P = "responses_create_params"


@pytest.mark.parametrize(
    ("row", "key", "words"),
    [
        (b'{"a": 1', "", "not valid JSON at column"),
        (b"\xff\xfe", "", "not UTF-8"),
        ([1], "", "holds a list; each line must be one JSON object"),
        ({"a": 1}, P, "the key is missing"),
        ({"response_create_params": INPUT}, P, "rename 'response_create_params'"),
        ({P: "hi"}, P, "must be an object, not a string"),
        ({P: {}}, f"{P}.input", "the key is missing"),
        ({P: {"inputs": []}}, f"{P}.input", "rename 'inputs'"),
        ({P: {"input": " "}}, f"{P}.input", "is empty"),
        ({P: {"input": "a \ud800"}}, f"{P}.input", "has an unpaired surrogate"),
        ({P: {"input": 3}}, f"{P}.input", "not a number"),
        ({P: {"input": ["hi"]}}, f"{P}.input[0]", "must be an object"),
        ({P: {"input": [{"content": "hi"}]}}, f"{P}.input[0].role", "is missing"),
        ({P: {"input": [{"role": "user"}]}}, f"{P}.input[0].content", "is missing"),
        (
            {P: {"input": [{"role": "usr", "content": "hi"}]}},
            f"{P}.input[0].role",
            "is 'usr'; use 'system', 'developer', 'user' or 'assistant'",
        ),
        ({P: {"input": [{"role": "user", "content": [1]}]}}, f"{P}.input[0].content[0]", '"type"'),
        (
            {P: {"input": [{"type": "function_call"}]}},
            f"{P}.input[0].call_id",
            "a string 'call_id'",
        ),
        (params(temperature="hot"), f"{P}.temperature", "must be a number"),
        (params(max_output_tokens=0), f"{P}.max_output_tokens", "at least 1"),
        (params(parallel_tool_calls=1), f"{P}.parallel_tool_calls", "must be true or false"),
        (params(tool_choice=1), f"{P}.tool_choice", "must be a string or an object"),
        (params(text=[]), f"{P}.text", "must be an object"),
        (params(model=1), f"{P}.model", "must be a string"),
        (params(tools={}), f"{P}.tools", "must be a list"),
        (params(tools=[{"name": "f"}]), f"{P}.tools[0]", '"type"'),
        (params(tools=[{"type": "function"}]), f"{P}.tools[0].name", "needs a string 'name'"),
        (
            params(tools=[{"type": "function", "function": {"name": "f"}}]),
            f"{P}.tools[0].name",
            "beside 'type'",
        ),
        (params(tools=[function(), function()]), f"{P}.tools[1].name", "tools[0] already"),
        (params(tools=[function(parameters=[])]), f"{P}.tools[0].parameters", "JSON Schema object"),
        (
            params(tools=[function(parameters={"type": "objekt"})]),
            f"{P}.tools[0].parameters.type",
            "not a valid JSON Schema: 'objekt'",
        ),
        ({**params(), "task_id": 7.5}, "task_id", "must be a string"),
        ({**params(), "task_id": True}, "task_id", "must be a string"),
        ({**params(), "task_id": ""}, "task_id", "is empty"),
        ({**params(), "seed": "x"}, "seed", "whole number"),
        ({**params(), "seed": 2**63}, "seed", "64 bits"),
        ({**params(), "tags": ["a"]}, "tags", "values are strings"),
        ({**params(), "environment": "maths"}, "environment", "did you mean 'math'?"),
        ({**params(), "agent": "x"}, "agent", "known names: tool_loop"),
    ],
)
def test_mistakes(tmp_path: Path, row: Any, key: str, words: str) -> None:
    (before, problem, after) = read(tmp_path / "t.jsonl", params(), row, {**params(), "x": 1})
    assert isinstance(before, TaskRow)
    assert isinstance(after, TaskRow)
    assert isinstance(problem, TaskProblem)
    assert (problem.line, problem.key) == (2, key)
    assert words in problem.sentence
    assert "\n" not in problem.sentence


def test_the_same_id_twice(tmp_path: Path) -> None:
    row = {**params(), "task_id": "a"}
    _, problem = read(tmp_path / "t.jsonl", row, row)
    assert isinstance(problem, TaskProblem)
    assert problem.at(Path("t.jsonl")) == (
        "t.jsonl:2: task_id: line 1 already has the id 'a'. Ids must be unique. To number repeated "
        "ids, add --number-repeated-ids"
    )


def test_repeated_ids_are_numbered_when_asked(tmp_path: Path) -> None:
    names: list[Any] = ["a", "a", "a-3", "a", "a-3", 5, "5", "b"]
    rows = [{**params(), "task_id": name} for name in names]
    reader = replace(READER, number_repeated_ids=True)
    entries = read(tmp_path / "t.jsonl", *rows, reader=reader)
    ids = [entry.task.task_id for entry in entries if isinstance(entry, TaskRow)]
    assert ids == ["a", "a-2", "a-3", "a-4", "a-3-2", "5", "5-2", "b"]
    by_index = TaskFile(reader, tmp_path / "t.jsonl")
    assert [by_index[at].task_id for at in range(len(names))] == ids
    assert [task.task_id for task in by_index] == ids


def test_rows_of_the_field_are_read(tmp_path: Path) -> None:
    row = {
        P: {"input": []},
        "task_id": 12,
        "environment": {"name": "shop", "seed": 3},
        "agent": ["x"],
    }
    (entry,) = read(tmp_path / "t.jsonl", row)
    assert isinstance(entry, TaskRow)
    task = entry.task
    assert (task.task_id, task.environment, task.agent) == ("12", "math", "tool_loop")
    # The verifier sees what the row has, and the output row has it under task_extras.
    assert json.loads(task.payload_json) == {key: row[key] for key in row if key != P}


def test_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    rows = [{**params(), "task_id": "a"}, {"nonsense": 1}, {**params(), "task_id": "b"}]
    path.write_text("\n" + "".join(json.dumps(row) + "\n" for row in rows))
    tasks = TaskFile(READER, path, without={3})
    assert [task.task_id for task in tasks] == ["a", "b"]
    assert [tasks[at].task_id for at in range(len(tasks))] == ["a", "b"]
    with pytest.raises(UserError, match=r"t.jsonl:3: responses_create_params: the key is missing"):
        list(TaskFile(READER, path))


def test_every_problem_of_a_row_is_said(tmp_path: Path) -> None:
    found = read(tmp_path / "t.jsonl", {**params(temperature="hot", tools=3), "seed": "x"})
    assert [entry.key for entry in found if isinstance(entry, TaskProblem)] == [
        "seed",
        f"{P}.temperature",
        f"{P}.tools",
    ]


def test_no_environment_and_no_default(tmp_path: Path) -> None:
    problems = read(tmp_path / "t.jsonl", params(), reader=TaskReader())
    assert [entry.key for entry in problems if isinstance(entry, TaskProblem)] == [
        "environment",
        "agent",
    ]


def test_blank_lines_and_a_byte_order_mark(tmp_path: Path) -> None:
    entries = read(tmp_path / "t.jsonl", b"\xef\xbb\xbf" + json.dumps(params()).encode(), b"", b" ")
    assert [entry.line for entry in entries] == [1]


def test_a_line_that_is_too_long_is_skipped_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymmesh_client.tasks.reader.MAX_ROW_BYTES", 100)
    entries = read(tmp_path / "t.jsonl", params(), b"x" * 350, {**params(), "x": 1})
    assert [type(entry) for entry in entries] == [TaskRow, TaskProblem, TaskRow]
    assert [entry.line for entry in entries] == [1, 2, 3]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: no such file"):
        list(READER.read(tmp_path / "gone.jsonl"))


@pytest.mark.golden
def test_nemos_example_rows_are_right(golden_dir: Path) -> None:
    reader = TaskReader(TaskDefaults("any", "any"))
    paths = sorted(golden_dir.glob("*.example.jsonl"))
    assert paths
    for path in paths:
        rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        entries = list(reader.read(path))
        assert [entry for entry in entries if isinstance(entry, TaskProblem)] == []
        for row, entry in zip(rows, entries, strict=True):
            assert isinstance(entry, TaskRow)
            payload = loads(entry.task.payload_json)
            assert {P: params_to_dict(entry.task.params), **payload} == row


@given(line=st.binary(max_size=200) | st.text(max_size=80).map(lambda text: text.encode("utf-8")))
def test_no_line_makes_the_reader_fail(
    tmp_path_factory: pytest.TempPathFactory, line: bytes
) -> None:
    path = tmp_path_factory.mktemp("tasks") / "t.jsonl"
    for entry in read(path, {"prompt": "first"}, line):  # the first line tells a file's form
        assert isinstance(entry, TaskRow | TaskProblem)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["responses_create_params", "task_id", "seed", "tags", "input", "tools", "x", "temperature"]
)


@given(row=st.dictionaries(KEYS, JSON | st.dictionaries(KEYS, JSON, max_size=3)))
def test_no_row_makes_the_reader_fail(
    tmp_path_factory: pytest.TempPathFactory, row: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("tasks") / "t.jsonl"
    assert len(read(path, row)) >= 1


def test_a_prompt_is_a_task(tmp_path: Path) -> None:
    """A text or messages, as in Python; beside parameters it is the verifier's."""
    messages = [{"role": "user", "content": "hi"}]
    text, several, both = read(
        tmp_path / "t.jsonl",
        {"prompt": "hi", "expected_answer": "5"},
        {"prompt": messages, "task_id": "m"},
        {"responses_create_params": INPUT, "prompt": "a note"},
    )
    assert isinstance(text, TaskRow)
    assert params_to_dict(text.task.params) == {"input": "hi"}
    assert loads(text.task.payload_json) == {"expected_answer": "5"}
    assert isinstance(several, TaskRow)
    assert params_to_dict(several.task.params) == {"input": messages}
    assert isinstance(both, TaskRow)
    assert loads(both.task.payload_json) == {"prompt": "a note"}


@pytest.mark.parametrize(
    ("prompt", "key"),
    [("", "prompt"), (7, "prompt"), ([{"content": "hi"}], "prompt[0].role"), (None, "prompt")],
)
def test_a_wrong_prompt_is_named(tmp_path: Path, prompt: Any, key: str) -> None:
    (problem,) = read(tmp_path / "t.jsonl", {"prompt": prompt})
    assert isinstance(problem, TaskProblem)
    assert problem.key == key


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'[{"question": "a"},\n {"question": "b"}]\n', "one JSON document"),
        (b'[{"question": "a"}]', "one JSON document"),
        (b'{\n  "data": []\n}\n', "one JSON document"),
        (b"PAR1\x15\x04", "a Parquet file"),
        (b"\x1f\x8b\x08", "gunzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
    ],
)
def test_a_file_of_another_form_is_refused_with_what_to_do(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "tasks.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=said) as refused:
        list(READER.read(path))
    hint = f"gym-cli import {path} --format hf"
    assert (hint in str(refused.value)) == (b"\x1f" not in content and b"\x28" not in content)


@pytest.mark.parametrize(
    ("row", "command"),
    [
        ({"question": "2 + 2?", "answer": "2 + 2 = 4\n#### 4"}, "--format hf"),
        ({"question": "?", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "A"}, "hf"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "--format messages"),
    ],
)
def test_a_row_of_a_data_set_gets_the_command_that_imports_it(
    tmp_path: Path, row: Any, command: str
) -> None:
    (problem,) = read(tmp_path / "t.jsonl", row)
    assert isinstance(problem, TaskProblem)
    assert problem.key == "responses_create_params"
    assert "gym-cli import FILE --format " in problem.sentence
    assert command in problem.sentence
