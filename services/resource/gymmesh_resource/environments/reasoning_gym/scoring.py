"""Scores by reasoning-gym's own datasets. Runs in worker processes, for it may hang or crash.

Invariant: a score is what the library gives for the entry as its generator made it, save for the
datasets in `CORRECTIONS`, and for answers that are no finite number, which are worth nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from gymmesh_resource.environments.reasoning_gym.corrections import (
    CORRECTIONS,
    as_expected,
    bare,
    finite,
)

# Of an exception's text, kept as evidence.
_TEXT = 300


class UnknownDataset(ValueError):
    """There is no dataset of that name."""


@dataclass(frozen=True, slots=True)
class Score:
    """A score. `error`: what the scorer raised, which leaves the value at 0; else empty."""

    value: float
    error: str = ""


def warm_up() -> None:
    """Import the library and make its scorers safe."""
    import reasoning_gym  # noqa: F401

    from gymmesh_resource.environments.reasoning_gym import guards

    guards.install()


def dataset_names() -> frozenset[str]:
    """The datasets whose answers can be scored."""
    from reasoning_gym.factory import DATASETS

    # A mixture of others: its entries carry the names of those.
    return frozenset(DATASETS) - {"composite"}


def score(dataset: str, answer: str, entry: dict[str, Any], corrected: bool) -> Score:
    """The score of an answer, 0.0 to 1.0. Raises `UnknownDataset`.

    `corrected`: by the corrections, rather than by the library alone.
    `entry`: question, answer and metadata as a task row has them, after a trip through JSON.
    """
    scorer = _scorer(dataset)
    if corrected:
        expected = "" if entry["answer"] is None else str(entry["answer"])
        answer = bare(answer, expected)
        if answer != expected and not finite(answer):
            return Score(0.0)
        if expected:
            answer = as_expected(answer, expected)
    correction = CORRECTIONS.get(dataset) if corrected else None
    try:
        if correction is not None:
            return Score(float(correction(scorer, answer, entry)))
        value = float(scorer(answer=answer, entry=entry))
        return Score(0.0 if corrected and not math.isfinite(value) else value)
    except Exception as error:  # scorers raise all kinds; the caller decides which is at fault
        return Score(0.0, f"{type(error).__name__}: {error}"[:_TEXT])


@cache
def _scorer(dataset: str) -> Callable[..., Any]:
    import reasoning_gym

    if dataset not in dataset_names():
        raise UnknownDataset(dataset)
    scorer: Callable[..., Any] = reasoning_gym.get_score_answer_fn(dataset)
    return scorer
