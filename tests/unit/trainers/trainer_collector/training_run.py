"""A training whose weights are a digest of all that it was trained on; a process of its own.

    python -m tests.unit.trainers.trainer_collector.training_run FOLDER STEPS [KILL]

Whatever rollout of one step differs makes all later steps differ. It continues from the checkpoint
in FOLDER, if there is one, and appends a line for each step to FOLDER/steps.jsonl. KILL is where
the process kills itself, as WHERE:STEP, with one of:

    call         in the middle of the step's engine calls
    group        after the step's first group
    trained      after the update, before the checkpoint
    saved        after the checkpoint
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any, Final

from gymmesh_trainers import (
    Generation,
    Mix,
    RolloutGroup,
    SamplingParams,
    TaskSet,
    TokenBackend,
    TrainerCollector,
    spread,
)
from tests.unit.trainers.char_model import CharTokenizer
from tests.unit.trainers.environments import Sums, rows
from tests.unit.trainers.trainer_collector.engines import drawn, generation

REPEATS: Final = 4
GROUPS: Final = 3
EVAL_EVERY: Final = 2


def named(name: str, count: int, answer: str) -> list[dict[str, Any]]:
    """Tasks; the answer is one of three that are sampled."""
    return [
        row | {"task_id": f"{name}{at}", "answer": answer} for at, row in enumerate(rows(count))
    ]


class Training:
    """The toy training."""

    def __init__(self, folder: Path, kill: str) -> None:
        self.folder = folder
        self.weights = "0"
        self.version = 0
        self.step = 0
        self.calls = 0
        self._kill = kill
        self._pauses = random.Random()  # other pauses in each process, on purpose

    def die_at(self, where: str) -> None:
        """Kill the process, if this is where."""
        if self._kill == f"{where}:{self.step}":
            os.kill(os.getpid(), signal.SIGKILL)

    async def engine(self, prompt: list[int], params: SamplingParams) -> Generation:
        """The same answer for the same prompt, seed and weights, after a pause."""
        text = f"{CharTokenizer().decode(prompt)}{self.weights}"
        version, greedy = self.version, params.temperature == 0
        self.calls += 1
        if self.calls == GROUPS * REPEATS // 2:
            self.die_at("call")
        await asyncio.sleep(self._pauses.random() * 0.01)
        seed = None if greedy else params.seed
        return generation(str(drawn(text, seed, version, 3)), version)

    def train(self, groups: list[RolloutGroup]) -> None:
        """The new weights follow from the old ones and all tokens, in order."""
        digest = hashlib.sha256(self.weights.encode())
        for group in groups:
            for rollout in group.rollouts:
                said = (group.task.id, rollout.reward, rollout.tokens, rollout.weights_versions)
                digest.update(repr(said).encode())
        self.weights = digest.hexdigest()

    def save(self, collector: TrainerCollector) -> None:
        """Write the checkpoint, whole or not at all."""
        state = {"weights": self.weights, "version": self.version}
        path = self.folder / "checkpoint.new"
        path.write_text(json.dumps(state | {"collector": collector.state_dict()}))
        path.replace(self.folder / "checkpoint.json")

    def load(self, collector: TrainerCollector) -> None:
        """Continue from the checkpoint, if there is one."""
        path = self.folder / "checkpoint.json"
        if path.exists():
            state = json.loads(path.read_text())
            self.weights, self.version = state["weights"], state["version"]
            collector.load_state_dict(state["collector"])

    async def run(self, steps: int) -> None:
        """Train up to so many steps in all."""
        mix = Mix(
            {
                "ones": TaskSet(named("one", 7, "1"), shuffle=5, seed=1),
                "twos": TaskSet(named("two", 5, "2"), seed=2),
            },
            weights={"ones": 2.0},
        )
        collector = TrainerCollector(
            Sums,
            tasks=mix,
            start_step=1,
            model=TokenBackend(CharTokenizer(), self.engine),
            repeats=REPEATS,
            concurrency=16,
            max_staleness=0,
            params={"temperature": 1.0},
            output=self.folder / "rollouts.jsonl",
            resume=True,
        )
        self.load(collector)
        async with collector:
            while collector.next_step <= steps:
                self.step, self.calls = collector.next_step, 0
                groups = []
                async with collector.step(
                    groups=GROUPS, keep=spread, at_most=12, leftovers="drop", ordered=True
                ) as step:
                    async for group in step:
                        groups.append(group)
                        self.die_at("group")
                self.train(groups)
                self.version = self.step
                await collector.set_weights_version(self.version)
                self.die_at("trained")
                line: dict[str, Any] = {
                    "step": self.step,
                    "weights": self.weights,
                    "groups": [[one.task.id, one.rewards] for one in groups],
                    "rejected": dict(step.rejected),
                    "counts": dict(collector.counts),
                    "mix": {name: dict(counts) for name, counts in mix.counts.items()},
                }
                if self.step % EVAL_EVERY == 0:
                    found = await collector.evaluate(named("v", 3, "1"))
                    line["evaluation"] = found.mean_reward
                self.save(collector)
                with (self.folder / "steps.jsonl").open("a") as file:
                    print(json.dumps(line), file=file)
                self.die_at("saved")


if __name__ == "__main__":
    given = [*sys.argv[1:], ""]
    asyncio.run(Training(Path(given[0]), given[2]).run(int(given[1])))
