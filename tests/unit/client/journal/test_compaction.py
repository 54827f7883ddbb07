"""Compaction: superseded rows leave their files, whatever the layout, and readers see it."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import OutputError, UserError, open_run
from gymmesh_client.disk import Disk
from gymmesh_client.journal.journal import Journal, NewOutcome
from gymmesh_client.log_records import COMPLETED, FAILED, RETRY
from gymmesh_client.output import compact_run
from gymmesh_client.output.compaction import compact
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.rollout_ids import rollout_id, rollout_key
from tests.unit.client.journal.crashing import CrashingDisk, PowerCut

LAYOUTS: list[dict[str, Any]] = [
    {},
    {"shard_rows": 4},
    {"zstd": True},
    {"shard_rows": 3, "zstd": True},
]
TASKS = range(12)
AGAIN = {0, 1, 5, 7, 11}


def new(number: int, attempt: int = 1) -> NewOutcome:
    name = rollout_id("r", f"t-{number}", 0)
    row = {"task_id": f"t-{number}", "rollout_id": name, "attempt": attempt, "text": "x" * number}
    status = FAILED if number % 4 == 1 else COMPLETED
    return NewOutcome(rollout_key(name), attempt, status, 0, json.dumps(row).encode())


def retried(folder: Path, layout: dict[str, Any], disk: Disk | None = None) -> Journal:
    """A run of 12 rollouts of which five were superseded, and four of these done again."""
    files = OutputFiles(folder / "out.jsonl", **layout)
    info = {"run_id": "r", "shard_rows": files.shard_rows, "zstd": files.compressed}
    journal = Journal.create(files, info, disk)
    for first in range(0, len(TASKS), 3):
        journal.commit([new(number) for number in TASKS[first : first + 3]])
    keys = {new(number).key for number in AGAIN}
    journal.supersede(journal.current(lambda one: one.key in keys), RETRY)
    journal.commit([new(number, 2) for number in AGAIN - {5}])
    return journal


def check(files: OutputFiles) -> None:
    """The rows are those that are current, and each is found."""
    with open_run(files.rows) as run:
        rows = [*run.rows(), *run.failures()]
        wanted = [(f"t-{at}", 1 + (at in AGAIN)) for at in TASKS if at != 5]
        assert sorted((row["task_id"], row["attempt"]) for row in rows) == sorted(wanted)
        for number in TASKS:
            attempts = run.attempts(rollout_id("r", f"t-{number}", 0))
            assert [one.current for one in attempts][-1] == (number != 5)
            rows_of = [json.loads(one.row or b"")["attempt"] for one in attempts]
            assert rows_of == ([1, 2] if number in AGAIN - {5} else [1])
    with closing(sqlite3.connect(files.index)) as index:
        said = index.execute("SELECT rollout_key, rollout_id, row_file FROM attempts").fetchall()
    assert [rollout_key(name) for _, name, _ in said] == [key for key, _, _ in said]
    assert all((files.rows.parent / file).exists() for _, _, file in said)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_superseded_rows_leave_their_files(tmp_path: Path, layout: dict[str, Any]) -> None:
    journal = retried(tmp_path, layout)
    files = journal.files
    check(files)
    sizes = {path: path.stat().st_size for path in (*files.all_shards(), files.failures)}
    assert not files.superseded.exists()
    assert compact(journal) == len(AGAIN)
    check(files)
    assert compact(journal) == 0
    assert all(path.stat().st_size <= size for path, size in sizes.items())
    superseded = [json.loads(line) for line in files.superseded.read_bytes().splitlines()]
    assert {row["task_id"] for row in superseded} == {f"t-{number}" for number in AGAIN}
    assert not files.compaction_drafts()
    # The journal goes on, and what it appends is found; from the log alone, too.
    journal.commit([new(5, 2)])
    journal.close()
    files.index.unlink()
    with open_run(files.rows) as run:
        assert (run.completed + run.failed, run.get("t-5")) == (12, json.loads(new(5, 2).row))
    again = Journal.resume(OutputFiles(files.rows))
    assert again.state.superseded == []
    assert again.state.counts == {COMPLETED: 9, FAILED: 3}
    again.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_kill_at_each_step_loses_and_doubles_nothing(
    tmp_path: Path, layout: dict[str, Any]
) -> None:
    for step in range(200):
        disk = CrashingDisk()
        folder = tmp_path / str(step)
        folder.mkdir()
        journal = retried(folder, layout, disk)
        disk.stop_after = step
        try:
            compact(journal)
        except PowerCut:
            journal.close()
        else:
            break
        finally:
            disk.stop_after = None
        check(journal.files)  # before anything is repaired
        assert compact_run(journal.files.rows) <= len(AGAIN)
        check(journal.files)
        assert not journal.files.compaction_drafts()
        lines = journal.files.superseded.read_bytes().splitlines()
        assert len({json.loads(line)["task_id"] for line in lines}) == len(lines) == len(AGAIN)
    else:
        pytest.fail("it never came to its end")
    assert step > 5
    journal.close()


class FullDisk(Disk):
    """Takes no draft of a compaction."""

    def write(self, fd: int, data: bytes, offset: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".1.tmp"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(fd, data, offset)


def test_a_full_disk_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    journal = retried(tmp_path, {}, FullDisk())
    before = journal.files.rows.read_bytes(), journal.files.journal.read_bytes()
    with pytest.raises(OutputError, match="no space left on device"):
        compact(journal)
    with pytest.raises(OutputError):
        journal.commit([new(5, 2)])
    journal.close()
    assert (journal.files.rows.read_bytes(), journal.files.journal.read_bytes()) == before
    check(journal.files)
    assert compact_run(journal.files.rows) == len(AGAIN)
    check(journal.files)


def test_modes_are_kept_and_a_run_at_work_is_refused(tmp_path: Path) -> None:
    journal = retried(tmp_path, {})
    journal.files.rows.chmod(0o640)
    with pytest.raises(UserError, match="another collector is writing to this file"):
        compact_run(journal.files.rows)
    journal.close()
    assert compact_run(journal.files.rows) == len(AGAIN)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes.pop("out.jsonl") == 0o640
    assert set(modes.values()) == {0o600}


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"out\.journal is missing"):
        compact_run(tmp_path / "out.jsonl")


def test_a_retry_and_a_second_outcome_in_one_commit(tmp_path: Path) -> None:
    journal = Journal.create(OutputFiles(tmp_path / "out.jsonl"), {"run_id": "r"})
    first, second = new(2), new(3)
    journal.commit([first])
    for entries in ([second, first], [second, second]):
        with pytest.raises(ValueError, match="two outcomes"):
            journal.commit(entries)
    assert journal.state.status(second.key) == 0
    journal.close()


def test_a_damaged_frame_without_current_rows_is_dropped_whatever_other_files_have(
    tmp_path: Path,
) -> None:
    """The first frame of every file is at byte 0."""
    files = OutputFiles(tmp_path / "out.jsonl", shard_rows=2, zstd=True)
    journal = Journal.create(files, {"run_id": "r", "shard_rows": 2, "zstd": True})
    for first in (2, 6):
        journal.commit([new(first), new(first + 1)])
    keys = {new(2).key, new(3).key}
    journal.supersede(journal.current(lambda one: one.key in keys), RETRY)
    path = files.shard(0)
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    assert compact(journal) == 2
    assert path.read_bytes() == b""
    journal.commit([new(2, 2), new(3, 2)])
    journal.close()
    with open_run(files.rows) as run:
        rows = [(row["task_id"], row["attempt"]) for row in run.rows()]
    assert sorted(rows) == [("t-2", 2), ("t-3", 2), ("t-6", 1), ("t-7", 1)]
