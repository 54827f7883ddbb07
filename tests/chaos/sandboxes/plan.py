"""What a seed of sandboxes stands for: a world, and what is killed in it when. Pure."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

SERVICE: Final = "service"
OWNER: Final = "owner"
FIRST_PROCESS: Final = "first process"
DAEMON: Final = "daemon"
WIRE: Final = "wire"
#: What starts the sandboxes of bubblewrap is called `daemon` here, as that of Docker's API is.
TARGETS: Final = (SERVICE, OWNER, FIRST_PROCESS, DAEMON, WIRE)
#: The environments that own sandboxes, each a process of its own.
OWNERS: Final = ("bench0", "bench1")


@dataclass(frozen=True)
class SandboxWorld:
    """What is up, and how much is done in it.

    Attributes:
        backend: `bubblewrap`, or `podman` by Docker's API.
        sandboxes: how many are made, at least.
        at_a_time: how many are used at a time.
        ttl_s: how long an own lease lasts when nobody renews it.
        seconds: the bound of all that is done before the last look.
    """

    seed: int
    backend: str
    sandboxes: int
    at_a_time: int
    ttl_s: int = 4
    seconds: float = 1800.0


@dataclass(frozen=True)
class SandboxFault:
    """One is killed, or the wire between a client and the service is cut, `after_s` seconds after
    the fault before it.
    """

    after_s: float
    target: str


def sandbox_world(seed: int, sandboxes: int, backend: str) -> SandboxWorld:
    """A seed's world."""
    chance = random.Random(f"sandboxes {seed}")
    at_a_time = chance.choice((8, 12, 16) if backend == "bubblewrap" else (4, 6))
    return SandboxWorld(seed, backend, sandboxes, at_a_time)


def sandbox_faults(world: SandboxWorld) -> Iterator[SandboxFault]:
    """What is done in a world, without an end: each target once in every five, in an order of
    chance.
    """
    chance = random.Random(f"faults of sandboxes {world.seed}")
    slower = 1.0 if world.backend == "bubblewrap" else 3.0
    while True:
        for target in chance.sample(TARGETS, len(TARGETS)):
            yield SandboxFault(round(slower * chance.uniform(0.6, 2.2), 3), target)


@dataclass(frozen=True)
class SandboxLife:
    """What is done with one sandbox.

    Attributes:
        number: tells it apart; a label of the sandbox.
        owner: the environment whose session has it; empty: a client of the service itself.
        words: how many lines are written in it, each by a program of its own.
        forks: copies that are made of it.
        abandoned: its owner leaves it to its TTL.
        pause_s: before each program.
    """

    number: int
    owner: str
    words: int
    forks: int
    abandoned: bool
    pause_s: float

    @property
    def sandboxes(self) -> int:
        """How many there are of it, at most, at a time."""
        return 1 + self.forks


def sandbox_lives(world: SandboxWorld) -> Iterator[SandboxLife]:
    """What is done in a world, one after another, without an end."""
    chance = random.Random(f"lives {world.seed}")
    for number in itertools.count():
        owner = chance.choice((*OWNERS, ""))
        yield SandboxLife(
            number=number,
            owner=owner,
            words=chance.randint(1, 4),
            forks=chance.choice((0, 0, 0, 2)) if not owner else 0,
            abandoned=chance.random() < 0.2,
            pause_s=chance.choice((0.0, 0.0, 0.05, 0.3)),
        )
