"""What the logs of ranks come to: was each group one living rank's, and were tokens even? Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class Life:
    """What one process of a rank noted.

    Attributes:
        killed: whether it was killed.
        got, acked: tokens by task. A task that it got twice is in `repeated`.
        open: the task that it was acknowledging when it was killed.
        replaced: why it was taken for dead, each time.
        ended: whether it came to the end of the run.
        began: when it got its first group, in seconds on the machine's clock.
    """

    rank: int
    killed: bool
    got: dict[str, int] = field(default_factory=dict)
    acked: dict[str, int] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    open: str = ""
    replaced: list[str] = field(default_factory=list)
    ended: bool = False
    began: float = 0.0


def life_of(rank: int, lines: Sequence[str], *, killed: bool) -> Life:
    """What the lines of a log say."""
    life = Life(rank, killed)
    for line in lines:
        word, *rest = line.split()
        if word == "got":
            if rest[0] in life.got:
                life.repeated.append(rest[0])
            life.got[rest[0]] = int(rest[1])
        elif word == "acking":
            life.open = rest[0]
        elif word == "acked":
            life.acked[rest[0]] = int(rest[1])
            life.open = ""
        elif word == "replaced":
            life.replaced.append(rest[0])
            life.open = ""
        elif word == "end":
            life.ended = True
            life.began = float(rest[0]) if rest else 0.0
    return life


def violations(
    lives: Sequence[Life], tasks: Sequence[str], *, lost: int = 0, within: float = 0.10
) -> list[str]:
    """What is wrong, in sentences; empty: nothing.

    Args:
        lost: how many groups at most nobody may have, as after a restart of the collector.
        within: how far apart the tokens of ranks that lived all the time may be.
    """
    found = []
    acked = Counter(task for life in lives for task in life.acked)
    found += [
        f"{task} was acknowledged {times} times" for task, times in acked.items() if times > 1
    ]
    living = Counter(task for life in lives if not life.killed for task in life.got)
    found += [
        f"{times} ranks that were not killed received {task}"
        for task, times in living.items()
        if times > 1
    ]
    found += [f"rank {life.rank} received {task} twice" for life in lives for task in life.repeated]
    unsure = {life.open for life in lives if life.killed}
    missing = [task for task in tasks if not acked[task] and task not in unsure]
    if len(missing) > lost:
        found.append(
            f"no rank acknowledged {len(missing)} groups, for example the groups of {missing[:5]}"
        )
    found += [f"{task} is not a task of the run" for task in acked.keys() - set(tasks)]
    found += [
        f"rank {one.rank} did not reach the end of the run"
        for one in lives
        if not (one.killed or one.ended)
    ]
    if (apart := spread(lives)) > within:
        found.append(
            f"the token counts of the ranks that were never killed differ by {apart:.1%} of "
            f"their mean, limit {within:.0%}"
        )
    return found


def shares(lives: Sequence[Life]) -> Mapping[int, int]:
    """The tokens that each rank acknowledged, of those that lived all the time."""
    died = {life.rank for life in lives if life.killed}
    return {one.rank: sum(one.acked.values()) for one in lives if one.rank not in died}


def spread(lives: Sequence[Life]) -> float:
    """How far apart these are: largest minus smallest, over their mean."""
    tokens = list(shares(lives).values())
    if len(tokens) < 2 or not sum(tokens):
        return 0.0
    return (max(tokens) - min(tokens)) * len(tokens) / sum(tokens)
