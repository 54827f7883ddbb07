"""Runs as an earlier version left them: superseded rows copied away, and blanked in their files.

The folder `earlier` has such runs of four tasks; t-1 was retried and completed, t-3 failed twice.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import OutputFiles, RetryChoice, RunIdentity, UserError, open_run, prepare
from gymmesh_client.journal import compact_run
from gymmesh_client.journal.frames import scan
from gymmesh_client.journal.records import Blanked, decode

EARLIER = Path(__file__).with_name("earlier")
DONE = [("t-0", 1), ("t-1", 2), ("t-2", 1)]


@pytest.fixture(params=["plain", "zstd"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> OutputFiles:
    folder = tmp_path / "run"
    shutil.copytree(EARLIER / request.param, folder)
    return OutputFiles(folder / "rollouts.jsonl")


def rows(files: OutputFiles) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    with open_run(files.rows) as run:
        return (
            sorted((row["task_id"], row["attempt"]) for row in run.rows()),
            [(row["task_id"], row["attempt"]) for row in run.failures()],
        )


def test_it_is_read(files: OutputFiles) -> None:
    assert rows(files) == (DONE, [("t-3", 2)])
    with open_run(files.rows) as run:
        for task in ("t-1", "t-3"):
            first, second = run.attempts(run.rollout_id(task, 0))
            assert (first.superseded, second.superseded) == ("a retry was asked for", "")
            assert b'"attempt": 1' in (first.row or b"")


async def test_it_is_gone_on_with(files: OutputFiles) -> None:
    kept: list[Any] = []
    output = prepare(
        files,
        RunIdentity("t", "c", "1.0"),
        overwrite=False,
        resume=True,
        retry=RetryChoice.parse(["task=t-2"]),
        on_row=kept.append,
    )
    assert sorted(row["task_id"] for row in kept) == ["t-0", "t-1"]
    await output.close()
    assert rows(files) == (DONE[:2], [("t-3", 2)])
    assert len(files.superseded.read_bytes().splitlines()) == 3
    with open_run(files.rows) as run:
        (only,) = run.attempts(run.rollout_id("t-2", 0))
        assert (only.current, b'"t-2"' in (only.row or b"")) == (False, True)


@pytest.mark.parametrize("files", ["plain"], indirect=True)
def test_one_that_was_stopped_while_rows_were_blanked_is_refused(files: OutputFiles) -> None:
    log = files.journal.read_bytes()
    ends = [
        frame.end
        for frame in scan(log)
        if any(isinstance(record, Blanked) for record in decode(frame.payload))
    ]
    files.journal.write_bytes(log[: ends[0]])
    before = {path: path.read_bytes() for path in files.rows.parent.iterdir()}
    with pytest.raises(UserError, match=r"an earlier version .* was stopped .* with that version"):
        compact_run(files.rows)
    assert {path: path.read_bytes() for path in files.rows.parent.iterdir()} == before
