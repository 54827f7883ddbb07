"""Half of a surrogate pair, at every place of a task row: a task or a sentence, never a crash."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client.problems import TaskProblem
from gymmesh_client.tasks.reader import TaskReader

ROW: dict[str, Any] = {
    "task_id": "a",
    "environment": "e",
    "agent": "g",
    "tags": {"k": "v"},
    "expected_answer": "4",
    "nested": {"k": ["v"]},
    "responses_create_params": {
        "input": [
            {"role": "user", "content": "x"},
            {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "t"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "i"},
            {"type": "function_call_output", "call_id": "c", "output": "o", "id": "j"},
            {"type": "other", "key": "v"},
        ],
        "instructions": "be brief",
        "model": "m",
        "previous_response_id": "p",
        "tool_choice": {"type": "function", "name": "f"},
        "metadata": {"k": "v"},
        "text": {"format": {"type": "text"}},
        "reasoning": {"effort": "low"},
        "truncation": "auto",
        "tools": [
            {"type": "function", "name": "f", "description": "d", "parameters": {"title": "t"}},
            {"type": "mcp", "server_label": "s"},
        ],
    },
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, str):
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in entries if isinstance(value, dict | list) else ():
        yield from places(one, (*path, key))


def spoilt(path: tuple[Any, ...]) -> Any:
    row = copy.deepcopy(ROW)
    at: Any = row
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] += "\ud800"
    return row


@pytest.mark.parametrize("path", list(places(ROW)), ids=str)
def test_half_a_pair_anywhere(path: tuple[Any, ...], tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(json.dumps(spoilt(path)) + "\n" + json.dumps(ROW | {"task_id": "b"}) + "\n")
    first, *_, second = TaskReader().read(file)
    assert not isinstance(second, TaskProblem)
    if isinstance(first, TaskProblem):
        assert "surrogate" in first.sentence or "not a valid JSON Schema" in first.sentence
        assert first.at(file).encode()


@pytest.mark.parametrize("tags", [{"k": "\ud800"}, {"\udfff": "v"}, {"k": "a\ud83d b"}])
def test_tags_are_text(tags: Any, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(json.dumps(ROW | {"tags": tags}) + "\n")
    (problem,) = TaskReader().read(file)
    assert isinstance(problem, TaskProblem)
    assert problem.key == "tags"
    assert "unpaired surrogate" in problem.sentence
