"""What a resumption says of what changed: keys with both values, tasks with their lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_client import OpenOptions, OutputFiles, RunIdentity, RunOutput, UserError
from gymmesh_client.run_file import TaskLines, changes
from gymmesh_client.run_file.changes import described
from gymmesh_client.run_file.task_lines import described as described_of_tasks

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=3), below),
    max_leaves=6,
)
CONFIGS = st.dictionaries(st.text(max_size=3), VALUES, max_size=4)


@given(CONFIGS, CONFIGS)
def test_changes_are_said_exactly_where_there_are_some(old: Any, new: Any) -> None:
    same = json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)
    assert (changes(old, new) == []) == same
    assert [one[1:] for one in changes(new, old)] == [
        (one.new, one.old) for one in changes(old, new)
    ]


def test_a_change_is_said_with_its_key_and_both_values() -> None:
    old = {"agents": {"a": {"max_steps": 8, "stop": ["x"]}}, "gone": 1, "api_key": "***"}
    new = {"agents": {"a": {"max_steps": 3, "stop": ["y"]}}, "new": None, "api_key": "known"}
    said = described(changes(old, new))
    assert said == (
        'agents.a.max_steps was 8 and is 3, agents.a.stop[0] was "x" and is "y", '
        "gone is gone: it was 1, new is new: null"
    )
    many = {str(number): number for number in range(9)}
    assert described(changes({}, many)).endswith("4 is new: 4, and 4 more")


def task(number: int, answer: str = "1") -> str:
    row = {"task_id": f"sum-{number}", "responses_create_params": {"input": f"{number}?"}}
    return json.dumps(row | {"expected_answer": answer}) + "\n"


ALL = [task(number) for number in range(4)]


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (
            [ALL[0], task(1, "2"), *ALL[2:]],
            "line 2 (task 'sum-1') differs; lines added or changed: 1",
        ),
        (ALL[:3], "the file ends before line 4; lines added or changed: 0, lines removed"),
        ([*ALL, task(4)], "line 5 (task 'sum-4') is new; lines added or changed: 1, lines removed"),
        (
            [ALL[0], ALL[2], ALL[1], ALL[3]],
            "the order of the lines differs from line 2 on (task 'sum-2')",
        ),
        ([line.strip() + "  \n" for line in ALL], "only whitespace around the lines differs"),
    ],
)
def test_the_task_that_changed_is_named(tmp_path: Path, now: list[str], words: str) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(ALL))
    was = TaskLines.of(path)
    was.write(tmp_path / "kept")
    kept = TaskLines.read(tmp_path / "kept")
    assert kept == was
    path.write_text("".join(now))
    assert words in described_of_tasks(kept, TaskLines.of(path), path)


def identity_of(folder: Path, config: dict[str, Any], lines: list[str]) -> RunIdentity:
    path = folder / "tasks.jsonl"
    path.write_text("".join(lines))
    return RunIdentity.of(path, config)


async def test_a_resumption_names_what_changed(tmp_path: Path) -> None:
    files = OutputFiles(tmp_path / "rollouts.jsonl")
    config = {"max_steps": 8, "options": {"api_key": "one"}}
    output = RunOutput.open(files, identity_of(tmp_path, config, ALL))
    output.abandon()
    changed = {"max_steps": 3, "options": {"api_key": "one"}}
    other = identity_of(tmp_path, changed, [*ALL[:3], task(3, "x")])
    with pytest.raises(UserError) as refused:
        RunOutput.open(files, other, OpenOptions(resume=True))
    assert "the tasks (line 4 (task 'sum-3') differs" in str(refused.value)
    assert "the configuration (max_steps was 8 and is 3)" in str(refused.value)
    secret = {"max_steps": 8, "options": {"api_key": "two"}}
    with pytest.raises(UserError, match="a secret value that is not kept"):
        RunOutput.open(files, identity_of(tmp_path, secret, ALL), OpenOptions(resume=True))
    # Without what stands beside the run, it is still refused, with less to say.
    files.run.unlink()
    files.task_lines.write_bytes(b"")
    with pytest.raises(
        UserError, match="can't be resumed: the tasks and the configuration changed"
    ):
        RunOutput.open(files, other, OpenOptions(resume=True))


def test_a_value_that_changed_as_a_whole_has_no_path() -> None:
    assert described(changes(None, {"models": 1})) == 'was null and is {"models": 1}'
