"""Programs that people ship, unchanged: they do what the script says, every call is captured once,
and nothing of them is left.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from gymmesh_agent.programs import find_program
from tests.programs.meshes import FOLDER, collect, tasks

pytestmark = pytest.mark.timeout(3600)
# What the script makes a program do: a command, and an end. Aider has no tools.
LEAST_CALLS = {"aider": 1}
TASKS = int(os.environ.get("GYMMESH_TEST_PROGRAM_TASKS", "20"))


def test_each_changes_the_files_as_scripted(program: str, tmp_path: Path) -> None:
    path = [str(FOLDER / program / "bin")]
    run = collect(tmp_path, tasks(TASKS), {"program": program, "path": path})
    assert not run.failures, (run.failures[0]["failure"], run.said[-2000:])
    assert len(run.rows) == TASKS, run.said[-2000:]
    asked = Counter(call["rollout_id"] for call in run.asked)
    for row in run.rows:
        assert row["reward"] == 1.0, (row, run.said[-2000:])
        assert row["stop_reason"] == "PROGRAM_EXITED"
        assert row["program"]["exit_code"] == 0
        version = find_program(program).tried[-1]
        assert row["program"]["detail"] == f"{program} {version}: exit code 0"
        calls = row["calls"]
        assert len(calls) == asked[row["rollout_id"]] >= LEAST_CALLS.get(program, 2)
        assert len({call["call_id"] for call in calls}) == len(calls)
