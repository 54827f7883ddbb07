"""Shards of a run: how they are written, which tasks they have, and what they refuse to become."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymmesh_client import OpenOptions, OutputFiles, RunIdentity, RunOutput, TaskReader, UserError
from gymmesh_client.tasks import Shard, TaskDefaults, TaskFile

ONE = RunIdentity("t", "c", "1.0")
READER = TaskReader(TaskDefaults("math", "tool_loop"), number_repeated_ids=True)


@pytest.mark.parametrize("text", ["0/1", "0/4", "3/4", "99999/100000"])
def test_a_shard_is_read_as_it_is_written(text: str) -> None:
    assert str(Shard.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "1", "4/4", "5/4", "-1/4", "0/0", "00/4", "1/04", "1 / 4", "1/4 ", "a/b", "0/100001"],
)
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected INDEX/COUNT"):
        Shard.parse(text)


@given(tasks=st.integers(0, 200), of=st.integers(1, 40))
def test_each_task_is_in_one_shard(tasks: int, of: int) -> None:
    shards = [Shard(index, of) for index in range(of)]
    assert all(sum(one.takes(task) for one in shards) == 1 for task in range(tasks))
    shares = [one.share(tasks) for one in shards]
    assert shares == [sum(map(one.takes, range(tasks))) for one in shards]
    assert max(shares) - min(shares) <= 1


# Rows with ids, without one, alike, blank lines and wrong rows.
ROWS = st.lists(st.sampled_from(["id", "none", "same", "copy", "blank", "wrong"]), max_size=30)


@settings(deadline=None, max_examples=60)
@given(kinds=ROWS, of=st.integers(1, 7), limit=st.none() | st.integers(1, 20))
def test_a_shards_tasks_are_every_nth_of_all(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], of: int, limit: int | None
) -> None:
    path = tmp_path_factory.mktemp("tasks") / "tasks.jsonl"
    path.write_text("".join(_line(kind, number) for number, kind in enumerate(kinds)))
    wrong = {line for line, kind in enumerate(kinds, start=1) if kind == "wrong"}
    all_ids = [one.task_id for one in TaskFile(READER, path, limit, wrong)]
    assert len(set(all_ids)) == len(all_ids)
    for index in range(of):
        read = TaskFile(READER, path, limit, wrong, Shard(index, of))
        assert [one.task_id for one in read] == all_ids[index::of]
        by_index = TaskFile(READER, path, limit, wrong, Shard(index, of))
        assert len(by_index) == len(all_ids[index::of])
        found = [by_index[at].task_id for at in range(len(by_index))]
        assert found == all_ids[index::of]


def _line(kind: str, number: int) -> str:
    if kind == "blank":
        return "\n"
    row: dict[str, object] = {"responses_create_params": {"input": f"What is {number}?"}}
    if kind == "wrong":
        row = {"task_id": f"t-{number}"}
    elif kind == "id":
        row["task_id"] = f"t-{number}"
    elif kind == "same":
        row["task_id"] = "same"
    elif kind == "copy":
        row = {"responses_create_params": {"input": "the same"}}
    return json.dumps(row) + "\n"


SECOND = Shard(1, 4)


@pytest.mark.parametrize(
    ("begun", "gone_on", "run_id", "says"),
    [
        (SECOND, Shard(2, 4), "", "is shard 1/4 of its run and can't be resumed as 2/4"),
        (SECOND, Shard(1, 5), "", "is shard 1/4 of its run and can't be resumed as 1/5"),
        (SECOND, None, "", "is shard 1/4 of its run and can't be resumed without --shard"),
        (None, SECOND, "", "was started without --shard and holds all tasks"),
        (SECOND, SECOND, "other", "belongs to run night, not other"),
        (None, None, "other", "belongs to run night, not other"),
    ],
)
async def test_another_part_is_not_gone_on_with(
    tmp_path: Path, begun: Shard | None, gone_on: Shard | None, run_id: str, says: str
) -> None:
    files = OutputFiles(tmp_path / "rollouts.jsonl")
    first = RunOutput.open(files, ONE, OpenOptions(run_id="night", shard=begun, tasks=8))
    assert (first.run_id, first.shard) == ("night", begun)
    await first.close()
    before = files.journal.read_bytes()
    with pytest.raises(UserError, match=says):
        RunOutput.open(files, ONE, OpenOptions(resume=True, run_id=run_id, shard=gone_on, tasks=8))
    assert files.journal.read_bytes() == before
    other = RunIdentity("u", "c", "1.0")
    with pytest.raises(UserError, match="can't be resumed: the tasks changed"):
        RunOutput.open(files, other, OpenOptions(resume=True, shard=begun, tasks=8))
    again = RunOutput.open(files, ONE, OpenOptions(resume=True, shard=begun, tasks=8))
    assert (again.run_id, again.shard) == ("night", begun)
    again.abandon()


async def test_a_run_that_begins_anew_has_another_id(tmp_path: Path) -> None:
    files = OutputFiles(tmp_path / "rollouts.jsonl")
    await RunOutput.open(files, ONE, OpenOptions(run_id="night")).close()
    before = files.journal.read_bytes()
    with pytest.raises(UserError, match="already holds run night"):
        RunOutput.open(files, ONE, OpenOptions(overwrite=True, run_id="night"))
    assert files.journal.read_bytes() == before
    output = RunOutput.open(files, ONE, OpenOptions(overwrite=True, run_id="night-2"))
    assert output.run_id == "night-2"
    output.abandon()
