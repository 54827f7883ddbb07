"""What a run may write over: no input of its own, and nothing that is no run's."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import OpenOptions, OutputFiles, RunIdentity, RunOutput, UserError, open_run
from gymmesh_client.index.seal import seal, unseal
from gymmesh_client.log.frames import HEADER, encode_frame
from gymmesh_client.log_records import RunOpened, encode

ONE = RunIdentity("t", "c", "1.0")


def files_in(folder: Path, **layout: Any) -> OutputFiles:
    return OutputFiles(folder / "rollouts.jsonl", **layout)


def begin(files: OutputFiles, **more: Any) -> RunOutput:
    return RunOutput.open(files, ONE, OpenOptions(**more))


async def a_run(files: OutputFiles) -> None:
    output = begin(files, trace=True)
    for task, fails in (("a", False), ("b", True)):
        name = output.rollout_id(task, 0)
        list(output.reserving(iter([task]), lambda task: output.rollout_id(task, 0)))
        line = json.dumps({"task_id": task, "repeat_index": 0, "rollout_id": name}).encode()
        await (output.failed(name, 1, 1, line) if fails else output.completed(name, 1, line))
    await output.close()


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def symbolic(tasks: Path, link: Path) -> Path:
    link.symlink_to(tasks)
    return link


def hard(tasks: Path, link: Path) -> Path:
    os.link(tasks, link)
    return link


def by_a_linked_folder(tasks: Path, link: Path) -> Path:
    link.symlink_to(tasks.parent)
    return link / tasks.name


LINKS: dict[str, Callable[[Path, Path], Path]] = {
    "the same path": lambda tasks, link: tasks,
    "a relative path": lambda tasks, link: Path(os.path.relpath(tasks)),
    "a dot": lambda tasks, link: tasks.parent / "." / tasks.name,
    "a symbolic link": symbolic,
    "a hard link": hard,
    "a linked folder": by_a_linked_folder,
}


@pytest.mark.parametrize("flags", [{}, {"overwrite": True}, {"resume": True}])
@pytest.mark.parametrize("spelled", LINKS)
@pytest.mark.parametrize(
    "which",
    ["rows", "failures", "superseded", "journal", "index", "trace", "summary", "skipped", "run"],
)
async def test_an_input_is_no_output(
    tmp_path: Path, which: str, spelled: str, flags: dict[str, bool]
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    files = files_in(folder)
    await a_run(files)
    # The input is what the run would write to, however it got there.
    getattr(files, which).write_text('{"responses_create_params": {"input": "hello"}}\n')
    asked = LINKS[spelled](getattr(files, which), tmp_path / "other")
    before = snapshot(folder)
    with pytest.raises(UserError, match=r"is an input of --input and would be overwritten"):
        begin(files, inputs={"--input": [asked]}, **flags)
    assert snapshot(folder) == before


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        ({"zstd": True}, "rollouts.jsonl.zst"),
        ({"shard_rows": 2}, "rollouts-00007.jsonl"),
        ({"shard_rows": 2, "zstd": True}, "rollouts-00000.jsonl.zst"),
        ({}, "rollouts.journal.tmp"),
        ({}, "rollouts.summary.json.tmp"),
    ],
)
def test_an_input_is_no_output_of_any_layout(
    tmp_path: Path, layout: dict[str, Any], name: str
) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match="would be overwritten"):
        begin(files_in(tmp_path, **layout), overwrite=True, inputs={"--config": [tmp_path / name]})
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rollouts.jsonl", '{"responses_create_params": {"input": "a task"}}\n'),
        ("rollouts.jsonl", "a letter\n"),
        ("rollouts.jsonl.zst", "\x28 not a frame"),
        ("rollouts.failures.jsonl", '{"name": "failures of another kind"}\n'),
        ("rollouts.superseded.jsonl", "[1, 2]\n"),
        ("rollouts.journal", "Dear diary"),
        ("rollouts.index", "A, B, C"),
        ("rollouts.trace", "Traceback"),
        ("rollouts.run.json", '{"runner": "somebody"}'),
        ("rollouts.summary.json", '{"summary": "of a book"}'),
        ("rollouts.skipped.jsonl", '{"line": 1}\n'),
        ("rollouts.journal.tmp", "a draft"),
        ("rollouts.summary.json.tmp", "a draft"),
        ("rollouts.skipped.jsonl.tmp", "a draft"),
    ],
)
def test_what_is_no_run_is_not_replaced(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(
        UserError, match=rf"{name} is not a run's output, so the file is not replaced"
    ):
        begin(files_in(tmp_path), overwrite=True)
    with pytest.raises(UserError):
        begin(files_in(tmp_path))
    assert snapshot(tmp_path) == {name: content.encode()}


async def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "rollouts.trace").mkdir()
    with pytest.raises(UserError, match=r"rollouts.trace is not a file"):
        begin(files_in(tmp_path), overwrite=True)


@pytest.mark.parametrize("layout", [{}, {"shard_rows": 1}, {"zstd": True}])
@pytest.mark.parametrize("torn", [False, True])
async def test_a_run_is_replaced(tmp_path: Path, layout: dict[str, Any], torn: bool) -> None:
    files = files_in(tmp_path, **layout)
    await a_run(files)
    if torn:  # as a kill leaves it
        for path in (files.shard(0), files.failures):
            path.write_bytes(path.read_bytes()[:7])
        (tmp_path / "rollouts.journal.tmp").write_bytes(HEADER[:9])
        (tmp_path / "rollouts.summary.json.tmp").write_text('{\n  "run_id": "run-1", "x')
        (tmp_path / "rollouts.skipped.jsonl.tmp").write_text('{"li')
    output = begin(files, overwrite=True)
    await output.close()
    assert not files.failures.exists()
    with open_run(files.rows) as run:
        assert (run.completed, run.failed) == (0, 0)


async def test_rows_that_lost_their_journal_are_a_run_s(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    await a_run(files)
    files.journal.unlink()
    await begin(files, overwrite=True).close()
    assert files.rows.read_bytes() == b""


async def test_what_is_made_is_the_owner_s_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        files = files_in(tmp_path)
        await a_run(files)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert set(modes) >= {f"rollouts.{end}" for end in ("jsonl", "journal", "index", "trace")}
    assert set(modes.values()) == {0o600}
    for path in (files.rows, files.journal):
        path.chmod(0o640)
    await RunOutput.open(files, ONE, OpenOptions(resume=True)).close()
    assert {stat.S_IMODE(path.stat().st_mode) for path in (files.rows, files.journal)} == {0o640}


@pytest.mark.parametrize(
    "said",
    [
        {"run_id": "../../evil"},
        {"run_id": "/etc/evil"},
        {"run_id": ".hidden"},
        {"run_id": "a\x1b[2Jb"},
        {"run_id": ""},
        {"run_id": 7},
        {"repeats": -1},
        {"repeats": "9"},
        {"session": 0},
        {"shard_rows": 0},
        {"shard_rows": "../x"},
        {"zstd": "yes"},
        {"identity": []},
    ],
)
async def test_a_journal_of_somebody_else_s_is_not_believed(
    tmp_path: Path, said: dict[str, Any]
) -> None:
    files = files_in(tmp_path)
    await a_run(files)
    identity = {"tasks": "t", "config": "c", "version": "1.0"}
    session = {"format": 1, "run_id": "run-1", "session": 1, "identity": identity, "repeats": 1}
    session |= {"shard_rows": None, "zstd": False}
    files.journal.write_bytes(HEADER + encode_frame(0, 1, encode(RunOpened(session))))
    files.failures.unlink()
    files.rows.write_bytes(b"")
    with open_run(files.rows) as run:
        assert run.run_id == "run-1"
    await RunOutput.open(files, ONE, OpenOptions(resume=True)).close()
    files.journal.write_bytes(HEADER + encode_frame(0, 1, encode(RunOpened(session | said))))
    for use in (lambda: begin(files, resume=True), lambda: open_run(files.rows)):
        with pytest.raises(
            UserError, match=r"of the session is|the session's .* (is|must be)"
        ) as raised:
            use()
        assert "\x1b" not in str(raised.value)


async def test_a_row_of_somebody_else_s_is_not_believed(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    await a_run(files)
    resume = OpenOptions(resume=True)
    with pytest.raises(UserError, match=r"rollouts\.jsonl:1: not a rollout's row: 'reward'"):
        RunOutput.open(files, ONE, resume, on_row=lambda row: row["reward"])
    row = files.rows.read_bytes()
    files.rows.write_bytes(b"[" + row[1:-2] + b"]\n")
    with pytest.raises(UserError, match=r"rollouts\.jsonl:1: the row was changed"):
        RunOutput.open(files, ONE, resume)


@pytest.mark.parametrize(
    "changed",
    [
        {"session": {"run_id": "../x"}},
        {"session": []},
        {"ends": [[0, 0]]},
        {"ends": [["../x", 0, 9]]},
        {"to_erase": [[1]]},
        {"counts": {"1": "many", "2": 0}},
        {"next": [0]},
        {"digest": 5},
    ],
)
async def test_an_index_of_somebody_else_s_is_made_anew(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    files = files_in(tmp_path)
    await a_run(files)
    unseal(files.index)
    with closing(sqlite3.connect(files.index)) as database, database:
        (state,) = database.execute("SELECT state FROM sources").fetchone()
        database.execute("UPDATE sources SET state = ?", (json.dumps(json.loads(state) | changed),))
    seal(files.index)
    with open_run(files.rows) as run:
        assert (run.completed, run.failed) == (1, 1)
        assert [row["task_id"] for row in run.rows()] == ["a"]


async def test_a_database_of_somebody_else_s_is_not_replaced(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    with closing(sqlite3.connect(files.index)) as database, database:
        database.execute("CREATE TABLE mine (a)")
    with pytest.raises(UserError, match=r"rollouts\.index is not a run's output"):
        begin(files, overwrite=True)


async def test_an_index_that_is_no_database_is_made_anew(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    await a_run(files)
    files.index.write_bytes(b"\x89gymmesh index\n\x01\n" + bytes(40))
    with open_run(files.rows) as run:
        assert run.completed == 1
    assert files.index.read_bytes().startswith(b"SQLite format 3\0")
