"""NAME.run.json over a run's life: begun, ended, interrupted, gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import (
    OpenOptions,
    OutputError,
    OutputFiles,
    RunIdentity,
    RunOutput,
    UserError,
)
from gymmesh_client.run_file import read_run_file
from gymmesh_runtime.contract import CONTRACT_VERSION

IDENTITY = RunIdentity("t", "c", "1.0")


def said(files: OutputFiles) -> dict[str, Any]:
    document = json.loads(files.run.read_text())
    assert isinstance(document, dict)
    return document


async def test_it_is_there_from_the_first_moment_to_the_last(tmp_path: Path) -> None:
    files = OutputFiles(tmp_path / "rollouts.jsonl")
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"responses_create_params": {"input": "?"}}\n')
    identity = RunIdentity.of(tasks, {"policy": {"api_key": "***", "headers": {"a": "ZZQQ"}}})
    output = RunOutput.open(files, identity, OpenOptions(repeats=2))
    begun = said(files)
    assert begun["state"] == "running"
    assert begun["run_id"] == output.run_id
    assert begun["repeats"] == 2
    assert begun["versions"]["contract"] == CONTRACT_VERSION
    assert begun["tasks"] == {"path": str(tasks), "sha256": identity.tasks}
    assert files.run.stat().st_mode & 0o777 == 0o600
    output.describe(services={"agents": {"a": [{"version": "1"}]}}, options={"note": "sk-12345678"})
    await output.close(
        seen={"counts": {"verified": 3}}, completed=3, failed=1, interrupted=False, why=""
    )
    ended = said(files)
    assert ended["state"] == "finished"
    assert ended["ended_at"] >= ended["started_at"]
    assert ended["counts"] == {"verified": 3, "completed": 3, "failed": 1}
    assert ended["services"] == {"agents": {"a": [{"version": "1"}]}}
    assert [one["session"] for one in ended["sessions"]] == [1]
    assert "ZZQQ" not in files.run.read_text()
    assert "sk-1" not in files.run.read_text()


async def test_an_interruption_and_what_came_after_it(tmp_path: Path) -> None:
    files = OutputFiles(tmp_path / "rollouts.jsonl")
    output = RunOutput.open(files, IDENTITY)
    output.describe(versions_seen={"environments": {"math": ["1"]}})
    await output.close(completed=1, failed=0, interrupted=True, why="interrupted")
    first = said(files)
    assert first["state"] == "ended early"
    assert first["sessions"][0]["ended_early"] == "interrupted"
    output = RunOutput.open(files, IDENTITY, OpenOptions(resume=True))  # and this one is killed
    output.abandon()
    killed = said(files)
    assert killed["state"] == "running"
    assert killed["counts"]["completed"] == 1
    output = RunOutput.open(files, IDENTITY, OpenOptions(resume=True))
    output.describe(versions_seen={"environments": {"math": ["2"], "code": ["1"]}})
    await output.close(completed=2, failed=0, interrupted=False, why="")
    last = said(files)
    assert [(one["session"], bool(one["ended_at"])) for one in last["sessions"]] == [
        (1, True),
        (2, False),
        (3, True),
    ]
    assert last["started_at"] == first["started_at"]
    assert last["versions_seen"] == {"environments": {"math": ["1", "2"], "code": ["1"]}}
    assert last["counts"] == {"completed": 2, "failed": 0}


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"format": 99}', b'{"run_id": "other"}'])
async def test_a_damaged_one_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    files = OutputFiles(tmp_path / "rollouts.jsonl")
    await RunOutput.open(files, IDENTITY).close()
    files.run.write_bytes(damage)
    assert read_run_file(files.run) == {}
    output = RunOutput.open(files, IDENTITY, OpenOptions(resume=True))
    await output.close(completed=0, failed=0)
    assert said(files)["sessions"][0]["session"] == 2
    # What is not recognisably a run's is never written over.
    aside = tmp_path / "rollouts.run.json.damaged"
    assert aside.exists() == (damage not in (b"", b'{"run_id": "other"}'))
    assert not aside.exists() or aside.read_bytes() == damage


async def test_without_its_journal_a_run_is_not_taken_for_one_of_before_there_was_one(
    tmp_path: Path,
) -> None:
    files = OutputFiles(tmp_path / "rollouts.jsonl")
    output = RunOutput.open(files, IDENTITY)
    await output.completed("ro-1", 1, b'{"task_id": "t", "rollout_id": "ro-1"}')
    await output.close()
    files.journal.unlink()
    with pytest.raises(UserError, match="journal is missing"):
        RunOutput.open(files, IDENTITY, OpenOptions(resume=True))


async def test_a_disk_that_takes_it_no_more_is_said_and_the_journal_is_closed(
    tmp_path: Path,
) -> None:
    files = OutputFiles(tmp_path / "rollouts.jsonl")
    output = RunOutput.open(files, IDENTITY)
    files.run.unlink()
    files.run.mkdir()
    with pytest.raises(OutputError, match=r"run\.json"):
        await output.close()
    files.run.rmdir()
    await RunOutput.open(files, IDENTITY, OpenOptions(resume=True)).close()
