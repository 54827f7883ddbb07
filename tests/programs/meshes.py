"""A mesh that runs a program as its agent, and the rows of a run of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("GYMMESH_TEST_PROGRAMS_FOLDER", ""))
WORKSPACE: Mapping[str, Any] = {"use": "workspace", "options": {"network": "agent"}}
_RUN_S = 3000
# A copied interpreter looks for its library where it was built.
_LIBRARY = next(iter(FOLDER.glob("python*/lib/libpython*.so")), None)


@dataclass(frozen=True)
class ProgramRun:
    """The rows of a run, and what the model was asked, by rollout."""

    rows: Sequence[Mapping[str, Any]]
    failures: Sequence[Mapping[str, Any]]
    asked: Sequence[Mapping[str, Any]]
    said: str


def tasks(count: int) -> list[dict[str, Any]]:
    """Files to write, each with a text of its own."""
    made = []
    for number in range(count):
        name, text = f"out{number}.txt", f"the text {number * 7919}"
        command = f"printf '%s\\n' '{text}' >{name}"
        check = {"name": "text", "run": f"test \"$(cat {name})\" = '{text}'"}
        alone = {"name": "alone", "run": 'test "$(ls out*.txt | wc -l)" = 1', "weight": 0.5}
        made.append(
            {
                "task_id": f"write-{number}",
                "responses_create_params": {
                    "input": f"Write the file {name} into the current folder with the one line "
                    f"{text!r}, and nothing else. Do it by one command:\n\nSHELL: {command}"
                },
                "files": {"README": "a workspace\n"},
                "workdir": "/task",
                "checks": [check, alone],
            }
        )
    return made


def collect(
    place: Path,
    rows: Sequence[Mapping[str, Any]],
    agent: Mapping[str, Any],
    *,
    concurrency: int = 2,
    repeats: int = 1,
    environment: Mapping[str, Any] = WORKSPACE,
) -> ProgramRun:
    """Runs the tasks with `options` of the agent `program`, by gym-cli in a process of its own.

    environment: its kind and options, as the configuration has them.
    """
    log, output = place / "asked.jsonl", place / "rollouts.jsonl"
    log.touch()
    env = {"LD_LIBRARY_PATH": str(_LIBRARY.parent)} if _LIBRARY is not None else {}
    config = {
        "models": {
            "policy": {
                "backend": "tests.programs.scripted_policy:ScriptedPolicy",
                "options": {"log": str(log)},
            }
        },
        "sandboxes": {
            "boxes": {
                "adapts": False,
                "options": {"folder": str(place / "boxes"), "binds": [str(FOLDER)]},
            }
        },
        "environments": {
            "work": {**environment, "sandboxes": {"sandbox": "boxes"}, "verify_timeout_s": 120}
        },
        "agents": {
            "coder": {
                "use": "program",
                "max_steps": 50,
                "options": {"env": env, **agent, "logs": str(place / "logs")},
            }
        },
        "defaults": {"environment": "work", "agent": "coder"},
    }
    (place / "mesh.json").write_text(json.dumps(config))
    (place / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["collect", "--config", str(place / "mesh.json"), "--input", str(place / "tasks.jsonl"),
             "--output", str(output), "--concurrency", str(concurrency),
             "--num-repeats", str(repeats), "--max-attempts", "1", "--timeout", "600"]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "gymmesh_cli.main", *words],
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        cwd=Path(__file__).parents[2],
    )
    return ProgramRun(
        _lines(output),
        _lines(place / "rollouts.failures.jsonl"),
        _lines(log),
        done.stdout + done.stderr,
    )


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
