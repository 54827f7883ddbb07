"""What a seed stands for: a world, and what happens to it when. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

COLLECTOR: Final = "collector"
ENDPOINT: Final = "endpoint"
TO_ENDPOINT: Final = "model-endpoint"
TO_AGENT: Final = "collector-agent"
STORMS: Final = ("hang", "drop", "truncate", "429", "500")
WIRE: Final = ("cut", "mute", "refuse", "delay", "loss")


@dataclass(frozen=True)
class World:
    """What is up: its layout, the endpoint's API, the output's form, and how much is asked for.

    `apart`: the agent (or the second cell) has a network namespace of its own, where that can be.
    `secured`: all is over mutual TLS, and callers have identities.
    """

    seed: int
    layout: str
    api: str
    tasks: int
    repeats: int
    concurrency: int
    shard_rows: int | None
    zstd: bool
    trace: bool
    apart: bool
    transport: str = "auto"
    attempts: int = 6
    slowest_s: float = 0.25
    secured: bool = False

    @property
    def rollouts(self) -> int:
        """How many are asked for."""
        return self.tasks * self.repeats

    @property
    def services(self) -> tuple[str, ...]:
        """The processes' names, as gymmesh_mesh.layout gives them."""
        if self.layout == "cell":
            return ("registry", "cell0", "cell1")
        return ("registry", "policy", "till", "tool_loop")

    @property
    def far(self) -> str:
        """The process that can have a network of its own."""
        return "cell1" if self.layout == "cell" else "tool_loop"


@dataclass(frozen=True)
class Fault:
    """Something that happens `at_s` seconds after the first rollout began, for `seconds`.

    `amount`: seconds of delay, a share of what is lost, seconds that a clock jumps.
    """

    at_s: float
    kind: str
    target: str
    seconds: float = 0.0
    amount: float = 0.0

    @property
    def name(self) -> str:
        """For reports."""
        return f"{self.kind}:{self.target}"

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def world_of(seed: int, rollouts: int) -> World:
    """A seed's world, with at least so many rollouts."""
    chance = random.Random(f"world {seed}")
    layout = ("mesh", "cell")[seed % 2]
    repeats = chance.choice((1, 4, 8))
    return World(
        seed=seed,
        layout=layout,
        api=chance.choice(("chat", "responses")),
        tasks=-(-rollouts // repeats),
        repeats=repeats,
        concurrency=chance.choice((8, 12, 16)),
        shard_rows=chance.choice((None, None, 50)),
        zstd=chance.random() < 0.3,
        trace=chance.random() < 0.5,
        apart=seed % 4 in (0, 3),
        transport="plain" if chance.random() < 0.2 else "auto",
        attempts=chance.choice((2, 4, 6)),
        secured=seed % 3 == 0,
    )


def schedule_of(world: World) -> list[Fault]:
    """What happens in a world, by its seed: a few of each family, in an order of chance."""
    chance = random.Random(f"faults {world.seed}")
    kinds = [*_kills(world, chance), *_stops(world, chance), *_wire(world, chance)]
    kinds += _storms(chance)
    if world.apart:
        kinds += [("partition", world.far, chance.uniform(1, 5), 0.0) for _ in range(2)]
    if chance.random() < 0.5:
        kinds.append(("disk full", COLLECTOR, 0.0, 0.0))
    elif not world.zstd and world.shard_rows is None and chance.random() < 0.5:
        kinds.append(("file limit", COLLECTOR, 0.0, 0.0))
    if chance.random() < 0.6:
        who = chance.choice([COLLECTOR, *world.services])
        kinds.append(("clock jump", who, 0.0, chance.choice((-86_400.0, -60.0, 60.0, 86_400.0))))
    chance.shuffle(kinds)
    return _timed(kinds, chance)


_Untimed = tuple[str, str, float, float]


def _kills(world: World, chance: random.Random) -> list[_Untimed]:
    found: list[_Untimed] = []
    for who in chance.sample([ENDPOINT, *world.services], 2):
        found.append(("kill", who, 0.0, 0.0))
    for kind in chance.sample(["kill", "power cut", "power cut"], 2):
        found.append((kind, COLLECTOR, 0.0, 0.0))
    return found


def _stops(world: World, chance: random.Random) -> list[_Untimed]:
    who = chance.choice([ENDPOINT, COLLECTOR, *world.services])
    return [("stop", who, chance.uniform(1, 4), 0.0)]


def _wire(world: World, chance: random.Random) -> list[_Untimed]:
    found: list[_Untimed] = []
    for kind in chance.sample(WIRE, 2):
        where = chance.choice((TO_ENDPOINT, TO_AGENT, TO_AGENT))
        amount = {"delay": chance.uniform(0.02, 0.3), "loss": chance.uniform(0.02, 0.2)}
        seconds = 0.0 if kind == "cut" else chance.uniform(1, 4)
        found.append((kind, where, seconds, amount.get(kind, 0.0)))
    return found


def _storms(chance: random.Random) -> list[_Untimed]:
    return [
        (kind, ENDPOINT, chance.uniform(0.5, 2.5), chance.uniform(0.3, 1.0))
        for kind in chance.sample(STORMS, 2)
    ]


def _timed(kinds: Sequence[_Untimed], chance: random.Random) -> list[Fault]:
    at_s, found = chance.uniform(0.5, 1.5), []
    for kind, target, seconds, amount in kinds:
        found.append(Fault(round(at_s, 3), kind, target, round(seconds, 3), round(amount, 3)))
        at_s += chance.uniform(0.8, 2.6)
    return found
