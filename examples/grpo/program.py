"""The sums through a program: agent.py is the agent, in a sandbox, and calls the policy by HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from gymmesh import MeshConfig, load_config

FOLDER: Final = Path(__file__).parent


def through_program() -> MeshConfig:
    """The configuration whose agent is agent.py."""
    text = (FOLDER / "agent.py").read_text(encoding="utf-8")
    files = json.dumps({"{home}/agent.py": text})
    sets = [f"agents.asker.options.files={files}"]
    return load_config([FOLDER / "program.yaml"], sets, MeshConfig)


def program_tasks(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sums as tasks of a workspace: the file `answer` is judged, 1 for the right sum."""
    return [
        {
            **task,
            "checks": [{"name": "sum", "run": f'test "$(cat answer)" = {task["expected_answer"]}'}],
            "verify_in": "same",
        }
        for task in tasks
    ]
