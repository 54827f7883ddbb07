"""What a seed of programs stands for: a world, and what is killed in it when. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

PROGRAM: Final = "program"
AGENT: Final = "coder"
SANDBOXES: Final = "boxes"
MODEL: Final = "policy"
ENVIRONMENT: Final = "workspace"
#: A program in its sandbox, and the services by the names of their processes.
TARGETS: Final = (PROGRAM, AGENT, SANDBOXES, MODEL, ENVIRONMENT)


@dataclass(frozen=True)
class ProgramWorld:
    """What is up, and how much is asked for.

    Attributes:
        rollouts: how many, each of a task of its own.
        concurrency: how many run at a time.
        slowest_s: the longest that the model takes for an answer.
        attempts: the most of a rollout.
        calls_between: how many model calls lie between two kills, at least and at most.
        seconds: the bound of the run.
    """

    seed: int
    rollouts: int
    concurrency: int = 8
    slowest_s: float = 0.3
    attempts: int = 12
    calls_between: tuple[int, int] = (8, 40)
    seconds: float = 900.0


@dataclass(frozen=True)
class ProgramFault:
    """One is killed once the model was called so often since the fault before it was done."""

    after_calls: int
    target: str


def program_faults(world: ProgramWorld) -> Iterator[ProgramFault]:
    """What is done in a world, without an end: each target once in every five, in an order of
    chance.
    """
    chance = random.Random(f"faults of programs {world.seed}")
    while True:
        for target in chance.sample(TARGETS, len(TARGETS)):
            yield ProgramFault(chance.randint(*world.calls_between), target)
