"""Programs on task folders of Harbor: plain ones, with steps, and with tests in a sandbox apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs.meshes import FOLDER, collect
from tests.unit.environments.harbor.made_tasks import (
    NEW,
    RUNNABLE,
    harbor_task,
    stepped_task,
    write_tasks,
)

pytestmark = pytest.mark.timeout(3600)
APART = '[verifier]\nenvironment_mode = "separate"\n'


def asking(path: str, text: str, *, append: bool = False) -> str:
    """An instruction whose script writes a line to a file."""
    command = f"printf '%s\\n' '{text}' >{'>' * append}{path}"
    return f"Write the line {text!r} to the file {path} by one command:\n\nSHELL: {command}\n"


HELLO = {"instruction.md": asking("hello.txt", "hello")}
# A new file in the working folder: Aider, which has no shell, can write that as well.
NEW_FILES = {
    name: {**RUNNABLE[name], **HELLO} for name in ("text", "json-first", "verifier-variables")
}
TASKS = {
    **NEW_FILES,
    "apart": harbor_task(
        f"{NEW}{APART}",
        'test "$(cat /logs/artifacts/a.txt)" = hello && r=1 || r=0\n'
        "echo $r >/logs/verifier/reward.txt\n",
        **{"instruction.md": asking("/logs/artifacts/a.txt", "hello")},
    ),
    "steps": stepped_task(
        {"one": "min_reward = 1.0\n", "two": ""},
        **{
            f"steps/{name}/instruction.md": asking("done", name, append=True)
            for name in ("one", "two")
        },
    ),
}


def test_each_works_on_task_folders(program: str, tmp_path: Path) -> None:
    tasks = NEW_FILES if program == "aider" else TASKS
    folder = write_tasks(tmp_path / "tasks", tasks)
    options = {
        "tasks": str(folder),
        "images": {"*": "host"},
        "network": "agent",
        "variables": {"WORD": "hello"},
    }
    rows = [
        {
            "task_id": name,
            "harbor": name,
            "responses_create_params": {
                "input": files.get("instruction.md", files.get("steps/one/instruction.md"))
            },
        }
        for name, files in tasks.items()
    ]
    agent = {"program": program, "path": [str(FOLDER / program / "bin")]}
    run = collect(tmp_path, rows, agent, environment={"use": "harbor", "options": options})
    assert not run.failures, (run.failures[0]["failure"], run.said[-2000:])
    assert {row["task_id"]: row["reward"] for row in run.rows} == dict.fromkeys(tasks, 1.0)
