"""Task folders from the command line: found by their path, collected, judged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gymmesh_cli.main import cli
from tests.support.optional import require
from tests.unit.environments.harbor.made_tasks import (
    NEW,
    RUNNABLE,
    harbor_task,
    write_tasks,
)

COMMAND = json.dumps({"command": "echo hello >hello.txt; echo bye >bye.txt"})
CALL = {"type": "function_call", "name": "shell", "arguments": COMMAND, "call_id": "call_1"}
FAULTY = "#!/bin/sh\nexit 0\n"


def collected(place: Path, tasks: dict[str, dict[str, str]]) -> tuple[int, list[dict[str, object]]]:
    """The exit code of `gym-cli collect` without a task file, and the rows."""
    write_tasks(place / "tasks", tasks)
    answers = [{"output": [CALL]}, {"text": "done"}]
    (place / "policy.jsonl").write_text(json.dumps({"match": "*", "answers": answers}) + "\n")
    options = {"tasks": "tasks", "images": {"*": "host"}, "network": "agent"}
    document = {
        "models": {"policy": {"backend": "replay", "path": "policy.jsonl"}},
        "environments": {"harbor": {"use": "harbor", "options": options, "verify_timeout_s": 120}},
        "sandboxes": {"sandbox": {"options": {"folder": str(place / "boxes")}}},
        "defaults": {"environment": "harbor"},
    }
    (place / "mesh.yaml").write_text(json.dumps(document))
    with pytest.raises(SystemExit) as ended:
        cli(["collect", "--config", "mesh.yaml", "--output", "out.jsonl", "--quiet"])
    output = place / "out.jsonl"
    lines = output.read_text().splitlines() if output.exists() else []
    return int(ended.value.code or 0), [json.loads(line) for line in lines]


def test_a_folder_of_tasks_is_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    monkeypatch.chdir(tmp_path)
    tasks = {name: dict(RUNNABLE[name]) for name in ("text", "older")}
    code, rows = collected(tmp_path, {**tasks, "faulty": harbor_task(test=FAULTY)})
    assert code == 3  # done, with failures
    assert {row["task_id"]: row["reward"] for row in rows} == dict.fromkeys(tasks, 1.0)
    (failed,) = (tmp_path / "out.failures.jsonl").read_text().splitlines()
    assert json.loads(failed)["task_id"] == "faulty"
    assert "VERIFIER_FAULT" in failed


def test_a_task_that_cannot_be_run_is_named_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    large = harbor_task(f"{NEW}gpus = 1\n")
    code, rows = collected(tmp_path, {"text": dict(RUNNABLE["text"]), "large": large})
    assert (code, rows) == (1, [])
    says = "large: task.toml environment.gpus: is not supported"
    assert says in capsys.readouterr().err
