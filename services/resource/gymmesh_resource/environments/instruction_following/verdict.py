"""Which of a task's instructions a response follows, and the reward for it.

Invariant: pure, and in time about linear in the response. An empty response follows nothing, as
in IFEval's own evaluation, though it has neither commas nor too many words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

from .checks import Check, bind

Bound: TypeAlias = "list[tuple[str, Mapping[str, Any]]]"
"""Instructions by their ids, with the arguments that a task gives them."""

GradingMode = Literal["binary", "fraction"]
MODES: Final[tuple[GradingMode, ...]] = get_args(GradingMode)


def followed(text: str, checks: Sequence[Check]) -> list[bool]:
    """For each instruction whether the response follows it."""
    if not text.strip():
        return [False] * len(checks)
    return [bool(check(text)) for check in checks]


def followed_by(text: str, bound: Bound) -> list[bool]:
    """`followed` in a form that a worker process can be sent."""
    return followed(text, [bind(name, arguments) for name, arguments in bound])


def reward(followed: Sequence[bool], mode: GradingMode) -> float:
    """binary: 1.0 if all are followed, else 0.0. fraction: the part that is followed."""
    if not followed:
        return 0.0
    return float(all(followed)) if mode == "binary" else sum(followed) / len(followed)
