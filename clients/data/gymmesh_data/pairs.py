"""Which rollouts of a task make a preference pair, and what the pair says. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from gymmesh_data.conversation import numbered_calls
from gymmesh_data.rollout import Json

K = TypeVar("K")
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class PairRules:
    """Which rollouts form a pair.

    Attributes:
        margin: smallest difference of the two rewards; they always differ.
        per_task: most pairs per task.
        whole: whether the answers are all that followed the common beginning, tool results
            included, or the one assistant message in which the two rollouts first differ. Trainers
            that tokenise again train what stands in the answers, tool results too.
    """

    margin: float = 0.0
    per_task: int = 4
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to the same conversation. prompt, chosen, rejected: messages."""

    prompt: list[Json]
    chosen: list[Json]
    rejected: list[Json]


def choose_pairs(scored: Sequence[tuple[float, K]], rules: PairRules) -> Iterator[tuple[K, K]]:
    """Pairs of a task's rollouts, the better one first.

    The best goes with the worst, the second best with the second worst, and so on while their
    rewards are apart: no rollout is in two pairs. Rollouts of the same reward go in their order.

    `scored`: rewards with what they are of, in the order in which the rollouts ended.
    """
    ranked = sorted(range(len(scored)), key=lambda one: -scored[one][0])
    for place in range(min(rules.per_task, len(ranked) // 2)):
        better, worse = scored[ranked[place]], scored[ranked[-1 - place]]
        apart = better[0] - worse[0]
        if apart <= 0 or round(apart, _DIGITS) < rules.margin:  # 1.0 and 0.9 are 0.1 apart
            return
        yield better[1], worse[1]


def pair_of(better: list[Json], worse: list[Json], rules: PairRules) -> Pair | None:
    """The pair that two conversations form; None if they form none.

    The prompt is the common beginning. Both must continue with an answer of the model: if they
    first differ in an item of the environment, the difference is not the model's. The ids of tool
    calls are the endpoint's, new in each rollout: they are ignored.
    """
    common = 0
    words, others = numbered_calls(better), numbered_calls(worse)
    for one, other in zip(words, others, strict=False):
        if not _same(one, other):
            break
        common += 1
    if not _answers_at(better, common) or not _answers_at(worse, common) or not common:
        return None
    end = None if rules.whole else common + 1
    return Pair(better[:common], better[common:end], worse[common:end])


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; true, 1 and 1.0 are three, other than in Python."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _answers_at(messages: list[Json], place: int) -> bool:
    return place < len(messages) and bool(messages[place]["role"] == "assistant")
