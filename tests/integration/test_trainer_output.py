"""The output of a TrainerCollector, given to the commands of gym-cli."""

from __future__ import annotations

import json
from pathlib import Path

from gymmesh_resource import Rollout, Session
from gymmesh_trainers import ScriptedBackend, TrainerCollector
from tests.support.cli import gym
from tests.unit.trainers.environments import Sums, rows


class Picky(Sums):
    """Sums without a verdict on the first task."""

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        if rollout.task.id == "t0":
            raise ValueError("no verdict")
        return 1.0


async def test_no_command_is_named_that_cannot_run_its_rollouts_again(tmp_path: Path) -> None:
    output = tmp_path / "rollouts.jsonl"
    async with TrainerCollector(
        Picky, model=ScriptedBackend(["1"]), repeats=1, output=output
    ) as collector:
        assert len([one async for one in collector.step(rows(2))]) == 2
    before = output.read_bytes()
    (tmp_path / "half.py").write_text("def half(session, rollout):\n    return 0.5\n")
    asked = ("reverify", "rollouts.jsonl", "--dry-run", "--json", "--verifier", "half.py")
    judged = await gym(*asked, cwd=tmp_path)
    assert [one["retry"] for one in json.loads(judged.out)["not_judged"]] == [None], judged.err

    for more in ((), ("--accept-change", "tasks", "--accept-change", "config")):
        done = await gym("collect", "--resume", "--output", "rollouts.jsonl", *more, cwd=tmp_path)
        assert done.code == 1, done.err
        done.said("has a run that gym-cli collect did not start. Resume this run with its program")
    assert output.read_bytes() == before
