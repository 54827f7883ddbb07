"""A task's payload: fresh for everyone who reads it, whether it was read before or not."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.errors import TaskInvalid
from gymmesh_resource.task import Task
from gymmesh_responses import loads

_leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
_leaves = _leaves.filter(lambda leaf: leaf not in (float("inf"), -float("inf")))
_values = st.recursive(_leaves, lambda part: st.lists(part) | st.dictionaries(st.text(), part))


def _task(raw: bytes) -> Task:
    return Task(rollout_pb2.Task(task_id="t", payload_json=raw))


@given(st.dictionaries(st.text(), _leaves) | st.dictionaries(st.text(), _values))
def test_a_payload_is_read_anew_for_each_task(payload: dict[str, Any]) -> None:
    raw = json.dumps(payload).encode()
    _task(raw).check()
    first = _task(raw).payload
    wanted = loads(raw)
    assert repr(first) == repr(wanted)
    kept = copy.deepcopy(wanted)
    first["added"] = 1
    for value in first.values():
        if isinstance(value, list | dict):
            value.clear()
    assert repr(_task(raw).payload) == repr(kept)


def test_a_task_has_one_payload() -> None:
    task = _task(b'{"a": 1}')
    assert task.payload is task.payload


@pytest.mark.parametrize("size", [1, 5000])
@pytest.mark.parametrize("form", ["[{}]", '{{"a": {}', '{}"'])
def test_what_is_no_payload_is_refused_each_time(form: str, size: int) -> None:
    raw = form.format("1" * size).encode()
    for _ in range(2):
        with pytest.raises(TaskInvalid):
            _task(raw).check()
        with pytest.raises(TaskInvalid):
            _ = _task(raw).payload


def test_no_payload_is_an_empty_one() -> None:
    _task(b"").check()
    assert _task(b"").payload == {}


def test_an_author_may_keep_things_with_a_task() -> None:
    task: Any = _task(b"")
    task.note = "mine"
    assert {task: task.note} == {task: "mine"}
    assert task != Task(task.message)


def test_a_key_that_the_row_lacks_is_the_tasks_fault() -> None:
    """Also for code that catches KeyError."""
    payload = _task(b'{"a": {"b": 1}}').payload
    with pytest.raises(TaskInvalid, match=r"^wanted: is missing. The environment reads this key$"):
        payload["wanted"]
    with pytest.raises(KeyError):
        payload["wanted"]
    assert payload.get("wanted") is None
    assert "wanted" not in payload
    assert json.loads(json.dumps(payload)) == payload == {"a": {"b": 1}}
