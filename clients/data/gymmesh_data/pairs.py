"""Chooses which rollouts of a task form a preference pair, and makes the pair's messages. Pure."""

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
        whole: whether an answer is everything after the common beginning, tool results included. If
            false, an answer is the one assistant message in which the two rollouts first differ.
            Trainers that tokenise the text again train on the whole answer, tool results too.
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

    The best rollout forms a pair with the worst, the second best with the second worst, and so on
    while their rewards differ by the margin. No rollout is in two pairs. Rollouts with equal
    rewards keep their order.

    `scored`: rewards, each with its rollout, in the order in which the rollouts ended.
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

    The prompt is the common beginning. Both must continue with an answer of the model: if the first
    difference is an item of the environment, the model did not make the difference. Ids of tool
    calls are ignored, because endpoints create new ids in each rollout.
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
