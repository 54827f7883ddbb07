"""Repeats that are judged together are so whole: over interruptions, limits and several runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import OpenOptions, OutputFiles, RunIdentity, RunOutput, open_run
from gymmesh_data.reverify import (
    ReverifyOptions,
    Source,
    VerdictChanges,
    Verifiers,
    reverify,
)
from gymmesh_mesh import MeshConfig
from gymmesh_mesh.verifying import embedded_environments
from gymmesh_runtime.config import load_config
from tests.integration.world import files as world
from tests.unit.data.rows import row, text, write_rows

IDENTITY = RunIdentity("t" * 64, "c" * 64, "0.0.0")


def repeats(task: str, lengths: list[int], run: str = "run-1") -> list[dict[str, Any]]:
    """Rows of a task's repeats, whose answers are so long; the last repeat ended first."""
    made = [
        row(
            text("x" * length),
            task=task,
            repeat=repeat,
            reward=None,
        )
        | {"rollout_id": f"{run}-{task}-{repeat}", "run_id": run, "environment": "rank"}
        for repeat, length in enumerate(lengths)
    ]
    return made[::-1]


async def judged(
    source: Path, output: Path, *, resume: bool = False, limit: int | None = None
) -> tuple[VerdictChanges, dict[str, float]]:
    """What `reverify` counted, and the rewards by rollout."""
    place = f"environments.rank.use={world.HERE / 'ranking.py'}:Ranking"
    config = load_config([], [place], MeshConfig)
    files = OutputFiles(output)
    made = RunOutput.open(files, IDENTITY, OpenOptions(resume=resume))
    options = ReverifyOptions(limit=limit)
    async with embedded_environments(config, {"rank"}) as directory:
        changes = await reverify(Source([source]), Verifiers(directory), made, options)
    with open_run(output) as run:
        return changes, {one["rollout_id"]: one["reward"] for one in run.rows()}


async def test_what_an_earlier_session_judged_is_judged_with_the_rest(tmp_path: Path) -> None:
    """Alone, the repeat that has no verdict yet would have lost against nobody."""
    source = write_rows(tmp_path / "rollouts.jsonl", repeats("t", [5, 9, 7]))
    output = tmp_path / "new.jsonl"
    before = RunOutput.open(OutputFiles(output), IDENTITY)
    for repeat, reward in ((0, 0.0), (1, 1.0)):
        name = f"run-1-t-{repeat}"
        line = json.dumps({"rollout_id": name, "task_id": "t", "reward": reward}) + "\n"
        await before.completed(name, 1, line.encode())
    await before.close()
    changes, rewards = await judged(source, output, resume=True)
    assert changes.judged == 1
    assert rewards == {"run-1-t-0": 0.0, "run-1-t-1": 1.0, "run-1-t-2": 0.5}


@pytest.mark.parametrize(("limit", "tasks"), [(1, {"a"}), (4, {"a", "b"}), (6, {"a", "b"})])
async def test_a_limit_cuts_no_group(limit: int, tasks: set[str], tmp_path: Path) -> None:
    rows = [*repeats("a", [1, 2, 3]), *repeats("b", [6, 5, 4]), *repeats("c", [1, 2, 3])]
    source = write_rows(tmp_path / "rollouts.jsonl", rows)
    _, rewards = await judged(source, tmp_path / "new.jsonl", limit=limit)
    wanted = {"a": [0.0, 0.5, 1.0], "b": [1.0, 0.5, 0.0]}
    assert rewards == {
        f"run-1-{task}-{repeat}": reward
        for task in tasks
        for repeat, reward in enumerate(wanted[task])
    }
    # Going on with the same limit finds nothing more to judge.
    changes, again = await judged(source, tmp_path / "new.jsonl", limit=limit, resume=True)
    assert (changes.judged, again) == (0, rewards)


async def test_runs_are_groups_of_their_own(tmp_path: Path) -> None:
    rows = [*repeats("t", [1, 2], "run-1"), *repeats("t", [8, 9], "run-2")]
    source = write_rows(tmp_path / "rollouts.jsonl", rows)
    _, rewards = await judged(source, tmp_path / "new.jsonl")
    assert rewards == {"run-1-t-0": 0.0, "run-1-t-1": 1.0, "run-2-t-0": 0.0, "run-2-t-1": 1.0}
