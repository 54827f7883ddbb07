"""A run's output: made ready, refused, gone on with, retried."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import (
    OpenOptions,
    OutputFiles,
    RetryChoice,
    RunIdentity,
    RunOutput,
    UserError,
    open_run,
)
from gymmesh_client.output.opening import OnRow
from gymmesh_client.rollout_ids import rollout_id

ONE = RunIdentity("t", "c", "1.0")
Done = Iterable[tuple[str, int, str]]


def ignore(row: Any) -> None:
    """Take no notice."""


def files_in(folder: Path, **layout: Any) -> OutputFiles:
    return OutputFiles(folder / "rollouts.jsonl", **layout)


def begin(
    files: OutputFiles, on_row: OnRow = ignore, on_failure: OnRow = ignore, **more: Any
) -> RunOutput:
    options = OpenOptions(**{"repeats": 2} | more)
    return RunOutput.open(files, ONE, options, on_row=on_row, on_failure=on_failure)


def resume(files: OutputFiles, *retry: str, **more: Any) -> RunOutput:
    return begin(files, resume=True, retry=RetryChoice.parse(retry), **more)


def row(output: RunOutput, task: str, repeat: int, attempt: int, **more: Any) -> bytes:
    name = output.rollout_id(task, repeat)
    fields = {"task_id": task, "repeat_index": repeat, "rollout_id": name, "attempt": attempt}
    return json.dumps(fields | more).encode()


async def collect(output: RunOutput, jobs: Done) -> list[int]:
    """Carry out jobs: (task, repeat, "" or the boundary to fail at); the attempts' numbers."""
    wanted = [job for job in jobs if not output.has_outcome(*job[:2])]
    numbered = list(output.reserving(iter(wanted), lambda job: output.rollout_id(*job[:2])))

    async def one(job: tuple[str, int, str], attempt: int) -> None:
        name = output.rollout_id(*job[:2])
        if job[2]:
            failure = {"boundary": job[2]}
            boundary = {"MODEL": 1, "TOOL": 2}[job[2]]
            await output.failed(
                name, attempt, boundary, row(output, *job[:2], attempt, failure=failure)
            )
        else:
            await output.completed(name, attempt, row(output, *job[:2], attempt))

    await asyncio.gather(*(one(*each) for each in numbered))
    await output.close(interrupted=False)
    return [attempt for _, attempt in numbered]


def keys(path: Path) -> list[tuple[str, int, int]]:
    lines = path.read_bytes().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return [(one["task_id"], one["repeat_index"], one["attempt"]) for one in rows]


THREE = [("t-1", 0, ""), ("t-1", 1, "MODEL"), ("t-2", 0, "TOOL")]


async def test_rows_and_failures_and_the_journal(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    assert await collect(begin(files), THREE) == [1, 1, 1]
    assert keys(files.rows) == [("t-1", 0, 1)]
    assert sorted(keys(files.failures)) == [("t-1", 1, 1), ("t-2", 0, 1)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "rollouts.failures.jsonl",
        "rollouts.index",
        "rollouts.journal",
        "rollouts.jsonl",
        "rollouts.run.json",
    ]


async def test_resume_keeps_outcomes_and_says_them(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    first = begin(files)
    await collect(first, THREE)
    before = files.rows.read_bytes(), files.failures.read_bytes()
    kept: list[Any] = []
    failed: list[Any] = []
    again = resume(files, on_row=kept.append, on_failure=failed.append)
    assert (again.run_id, again.outcomes, again.retried) == (first.run_id, 3, 0)
    assert ([one["task_id"] for one in kept], len(failed)) == (["t-1"], 2)
    assert await collect(again, [*THREE, ("t-3", 0, "")]) == [1]
    assert files.rows.read_bytes().startswith(before[0])
    assert files.failures.read_bytes() == before[1]


@pytest.mark.parametrize(
    ("retry", "again"),
    [
        (["failed"], [("t-1", 1), ("t-2", 0)]),
        (["boundary=TOOL"], [("t-2", 0)]),
        (["boundary=tool", "task=t-1"], [("t-1", 0), ("t-1", 1), ("t-2", 0)]),
        (["task=t-1"], [("t-1", 0), ("t-1", 1)]),
        (["task=t-9"], []),
    ],
)
@pytest.mark.parametrize("layout", [{}, {"shard_rows": 1}, {"zstd": True}])
async def test_a_retry_supersedes_what_it_names(
    tmp_path: Path, retry: list[str], again: list[tuple[str, int]], layout: dict[str, Any]
) -> None:
    files = files_in(tmp_path, **layout)
    await collect(begin(files), THREE)
    output = resume(files_in(tmp_path), *retry)
    assert output.retried == len(again)
    assert [job[:2] for job in THREE if not output.has_outcome(*job[:2])] == again
    assert await collect(output, [(*job[:2], "") for job in THREE]) == [2] * len(again)
    with open_run(files.rows) as run:
        assert (run.completed, run.failed) == (
            1 + sum(j != ("t-1", 0) for j in again),
            2 - sum(j != ("t-1", 0) for j in again),
        )
        both = [*run.rows(), *run.failures()]
        assert sorted((one["task_id"], one["repeat_index"]) for one in both) == [
            job[:2] for job in THREE
        ]
        for task, repeat, _ in THREE:
            attempts = run.attempts(rollout_id(run.run_id, task, repeat))
            assert [one.current for one in attempts] == (
                [False, True] if (task, repeat) in again else [True]
            )
    assert sorted(key[:2] for key in keys(files.superseded)) == again


async def test_numbers_are_used_up_by_a_kill_and_given_back_by_an_end(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    jobs = [("t-1", 0, ""), ("t-2", 0, ""), ("t-3", 0, "")]
    killed = begin(files)
    handed = killed.reserving(iter(jobs), lambda job: killed.rollout_id(*job[:2]))
    assert next(handed) == (jobs[0], 1)
    await killed.completed(killed.rollout_id("t-1", 0), 1, row(killed, "t-1", 0, 1))
    killed._journal.close()  # a kill: the end is not written
    ended = resume(files)
    handed = ended.reserving(iter(jobs[1:]), lambda job: ended.rollout_id(*job[:2]))
    # t-2 and t-3 may have been sent, for all that is known.
    assert next(handed) == (jobs[1], 2)
    await ended.close()
    again = resume(files)
    assert await collect(again, jobs[1:]) == [3, 2]


async def test_a_further_attempt_is_reserved(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    first = begin(files)
    await collect(first, [("t-0", 0, "")])
    killed = resume(files)
    name = killed.rollout_id("t-1", 0)
    list(killed.reserving(iter(["t-1"]), lambda job: name))
    await killed.tried(name, 1, 1)
    await killed.reserve(name, 2)
    killed._journal.close()
    again = resume(files)
    assert await collect(again, [("t-1", 0, "")]) == [3]
    with open_run(files.rows) as run:
        history = [(one.attempt, one.outcome, one.boundary) for one in run.attempts(name)]
    assert history == [(1, "failed", 1), (3, "completed", 0)]


async def test_an_output_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    await collect(begin(files), THREE)
    before = files.rows.read_bytes()
    with pytest.raises(UserError, match=r"rollouts.jsonl already exists.*--resume.*--overwrite"):
        begin(files)
    assert files.rows.read_bytes() == before
    await collect(begin(files, overwrite=True), [])
    assert files.rows.read_bytes() == b""
    assert not files.failures.exists()


async def test_two_collectors_cannot_share_an_output(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    await collect(begin(files), THREE)
    output = resume(files)
    again: list[dict[str, Any]] = [{"resume": True}, {"overwrite": True}]
    for more in again:
        with pytest.raises(UserError, match="another collector is writing to this file"):
            begin(files, **more)
    output.abandon()
    output.abandon()
    await resume(files).close()


@pytest.mark.parametrize("cancelled_after", [1, 2, 3, 5])
async def test_a_close_that_is_cancelled_leaves_no_file_open(
    tmp_path: Path, cancelled_after: int
) -> None:
    files = files_in(tmp_path)
    output = begin(files)
    [(_, attempt)] = output.reserving(iter(["t"]), lambda task: output.rollout_id(task, 0))
    name = output.rollout_id("t", 0)
    await output.completed(name, attempt, row(output, "t", 0, attempt))
    closing = asyncio.create_task(output.close())
    for _ in range(cancelled_after):
        await asyncio.sleep(0)
    for _ in range(2):
        closing.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([closing])
    again = resume(files)
    assert again.has_outcome("t", 0)
    await again.close()


async def test_a_folder_that_is_not_there_is_made(tmp_path: Path) -> None:
    files = files_in(tmp_path / "new" / "deep")
    await collect(begin(files), THREE)
    assert files.rows.exists()
    assert {stat.S_IMODE(one.stat().st_mode) for one in (files.rows.parent, tmp_path / "new")} == {
        0o700
    }


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="file is not a folder"):
        begin(files_in(tmp_path / "file" / "deep"))


@pytest.mark.parametrize(
    ("identity", "words", "accept"),
    [
        (RunIdentity("x", "c", "1.0"), "can't be resumed: the tasks changed", {"tasks"}),
        (RunIdentity("t", "x", "1.0"), "the configuration changed", {"config"}),
        (RunIdentity("t", "c", "2"), r"the version of gymmesh \(1.0, now 2\) ch", {"version"}),
        (RunIdentity("x", "x", ""), "the tasks and the configuration", {"tasks", "config"}),
    ],
)
async def test_another_run_is_refused_unless_the_change_is_named(
    tmp_path: Path, identity: RunIdentity, words: str, accept: set[str]
) -> None:
    files = files_in(tmp_path)
    await collect(begin(files), THREE)
    for short in [set[str](), *({one} for one in accept if len(accept) > 1)]:
        with pytest.raises(UserError, match="--accept-change"):
            RunOutput.open(files, identity, OpenOptions(resume=True, accept=short))
    with pytest.raises(UserError, match=words):
        RunOutput.open(files, identity, OpenOptions(resume=True))
    output = RunOutput.open(files, identity, OpenOptions(resume=True, accept=accept))
    assert output.outcomes == 3
    await output.close()
    # From now on that is what the run is made of.
    await RunOutput.open(files, identity, OpenOptions(resume=True)).close()


@pytest.mark.parametrize(
    ("begun", "layout", "words"),
    [
        ({}, {"zstd": True}, "remove --zstd"),
        ({}, {"shard_rows": 3}, "started in one file"),
        ({"shard_rows": 2}, {"shard_rows": 3}, "with --shard-rows 2"),
    ],
)
async def test_the_layout_stays(
    tmp_path: Path, begun: dict[str, Any], layout: dict[str, Any], words: str
) -> None:
    await collect(begin(files_in(tmp_path, **begun)), THREE)
    with pytest.raises(UserError, match=words):
        resume(files_in(tmp_path, **layout))


async def test_shards_are_full_and_closed(tmp_path: Path) -> None:
    files = files_in(tmp_path, shard_rows=2)
    await collect(begin(files), [(f"t-{number}", 0, "") for number in range(5)])
    sizes = [len(keys(path)) for path in files.all_shards()]
    assert sizes == [2, 2, 1]
    assert files.all_shards()[0].name == "rollouts-00000.jsonl"
    before = [path.read_bytes() for path in files.all_shards()]
    output = resume(files_in(tmp_path))
    await collect(output, [(f"t-{number}", 0, "") for number in range(8)])
    assert [len(keys(path)) for path in files.all_shards()] == [2, 2, 2, 2]
    assert [path.read_bytes() for path in files.all_shards()][:2] == before[:2]


async def test_resume_cuts_what_is_torn(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    await collect(begin(files), THREE)
    before = [path.read_bytes() for path in (files.rows, files.failures, files.journal)]
    for path in (files.rows, files.failures, files.journal):
        with path.open("ab") as file:
            file.write(b'{"task_id": "t-5", "repeat_ind')
    resume(files).abandon()
    assert [path.read_bytes() for path in (files.rows, files.failures)] == before[:2]
    assert files.journal.read_bytes().startswith(before[2])


async def test_rows_that_were_taken_away_are_missed(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    await collect(begin(files), THREE)
    files.rows.write_bytes(files.rows.read_bytes()[:-1])
    with pytest.raises(
        UserError, match=r"rollouts.jsonl has \d+ bytes, but the run's journal expects"
    ):
        resume(files)
    files.rows.unlink()
    with pytest.raises(UserError, match=r"rollouts.jsonl is missing, but"):
        resume(files)


async def test_a_damaged_journal_changes_nothing(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    await collect(begin(files), THREE)
    raw = bytearray(files.journal.read_bytes())
    raw[200] ^= 1
    files.journal.write_bytes(raw)
    with pytest.raises(UserError, match=r"journal: commit 0, at byte \d+, is damaged"):
        resume(files)
    assert files.journal.read_bytes() == raw
    files.journal.write_bytes(b"something else altogether")
    with pytest.raises(UserError, match="is not a journal of this version"):
        resume(files)


async def test_an_output_without_a_journal(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.rows.write_bytes(b'{"task_id": "t"}\n')
    with pytest.raises(UserError, match=r"journal is missing, so .* can't be resumed"):
        resume(files)


def test_nothing_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"rollouts.jsonl does not exist, so there is nothing"):
        resume(files_in(tmp_path))
    assert list(tmp_path.iterdir()) == []


async def test_a_run_that_was_killed_before_its_first_row_is_the_same_run(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    first = begin(files)
    name = first.rollout_id("t-1", 0)
    ((_, attempt),) = first.reserving(iter([("t-1", 0)]), lambda job: first.rollout_id(*job))
    await first.tried(name, attempt, 1)
    first.abandon()
    with pytest.raises(UserError, match="tasks"):
        RunOutput.open(files, RunIdentity("u", "c", "1.0"), OpenOptions(resume=True))
    again = resume(files)
    assert again.run_id == first.run_id
    assert await collect(again, THREE[:1]) == [2]
    with open_run(files.rows) as run:
        assert [one.attempt for one in run.attempts(name)] == [1, 2]


async def test_a_retry_of_everything_that_is_killed_is_gone_on_with(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    first = begin(files)
    await collect(first, THREE)
    resume(files, "failed", "task=t-1").abandon()
    with open_run(files.rows) as run:
        assert [*run.rows(), *run.failures()] == []
    again = resume(files)
    assert (again.run_id, again.outcomes) == (first.run_id, 0)
    assert await collect(again, THREE) == [2, 2, 2]
    assert keys(files.rows) == [("t-1", 0, 2)]
    assert sorted(keys(files.failures)) == [("t-1", 1, 2), ("t-2", 0, 2)]
    assert sorted(keys(files.superseded)) == [("t-1", 0, 1), ("t-1", 1, 1), ("t-2", 0, 1)]


# ---- identity and choices -----------------------------------------------------------------------


def test_identity_is_of_content(tmp_path: Path) -> None:
    tasks = tmp_path / "t.jsonl"
    tasks.write_text("a")
    one = RunIdentity.of(tasks, {"a": 1, "b": 2})
    assert one == RunIdentity.of(tasks, {"b": 2, "a": 1})
    assert one.changes(RunIdentity.of(tasks, {"a": 1})) == ["config"]
    tasks.write_text("b")
    assert one.changes(RunIdentity.of(tasks, {"a": 1, "b": 2})) == ["tasks"]
    with pytest.raises(UserError, match="cannot be read"):
        RunIdentity.of(tmp_path / "gone", {})


@pytest.mark.parametrize("word", ["", "fail", "boundary=", "boundary=MOON", "task=", "task", "x=y"])
def test_words_that_choose_nothing(word: str) -> None:
    choices = r"--retry .*: expected failed, damaged, task=ID or boundary"
    with pytest.raises(UserError, match=choices):
        RetryChoice.parse([word])


@pytest.mark.parametrize("layout", [{}, {"zstd": True}, {"shard_rows": 1}])
async def test_a_row_that_was_changed_is_refused_and_run_again(
    tmp_path: Path, layout: dict[str, Any]
) -> None:
    files = files_in(tmp_path, **layout)
    jobs = [("a", 0, ""), ("b", 0, ""), ("c", 0, "TOOL")]
    for job in jobs:  # each in a commit of its own
        output = begin(files) if job == jobs[0] else resume(files)
        await collect(output, [job])
        await output.close()
    shard = files.shard(1 if files.shard_rows else 0)
    good = shard.read_bytes()
    second = good.rindex(b"\x28\xb5\x2f\xfd") + 12 if files.zstd else good.rindex(b"task_id")
    changed = good[:second] + bytes([good[second] ^ 1]) + good[second + 1 :]
    shard.write_bytes(changed)
    told = rf"{shard.name}:\d: the row was changed after it was written"
    with pytest.raises(UserError, match=told):
        resume(files)
    assert shard.read_bytes() == changed
    output = resume(files, "damaged")
    assert output.retried == 1
    assert await collect(output, jobs) == [2]
    await output.close()
    with open_run(files.rows) as run:
        rows = [(one["task_id"], one["attempt"]) for one in (*run.rows(), *run.failures())]
        assert sorted(rows) == [("a", 1), ("b", 2), ("c", 1)]
        assert run.get("b") is not None
    again = resume(files)
    assert await collect(again, jobs) == []
    await again.close()


@pytest.mark.parametrize("name", ["summary", "run", "task_lines", "trace", "index", "log"])
async def test_a_derived_file_that_is_damaged_does_not_stop_a_resumption(
    tmp_path: Path, name: str
) -> None:
    files = files_in(tmp_path)
    output = begin(files, trace=True)
    await collect(output, THREE)
    await output.close()
    path: Path = getattr(files, name)
    path.write_bytes(b"\x00 of somebody else's")
    again = resume(files, trace=True)
    assert await collect(again, THREE) == []
    await again.close()
    assert [notice for notice in again.notices if path.name in notice]
    aside = tmp_path / f"{path.name}.damaged"
    assert aside.read_bytes() == b"\x00 of somebody else's"
    path.write_bytes(b"\x01 of somebody else's")
    third = resume(files, trace=True)
    await third.close()
    assert [notice for notice in third.notices if f"{aside.name}.2" in notice]
    assert aside.read_bytes() == b"\x00 of somebody else's"
    assert aside.with_name(f"{aside.name}.2").read_bytes() == b"\x01 of somebody else's"
    with open_run(files.rows) as run:
        assert (run.completed, run.failed) == (1, 2)
