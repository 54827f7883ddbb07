"""Which of a task's instructions a response follows, and the reward for it.

Invariant: pure, and in time about linear in the response. An empty response follows no instruction,
as in IFEval's own evaluation, although it has neither commas nor too many words.

If IFEval's check of an instruction is wrong, gymmesh uses its own check, except with `compat`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

from gymmesh_resource.environments.instruction_following import formats, ifeval, lengths, words  # noqa: F401  # they register themselves
from gymmesh_resource.environments.instruction_following.registry import (
    INSTRUCTIONS,
    REFERENCE,
    read,
)

Check: TypeAlias = Callable[[str], bool]
"""Whether a response follows an instruction with its arguments."""

Bound: TypeAlias = "list[tuple[str, Mapping[str, Any]]]"
"""Instructions by their ids, with the arguments that a task gives them."""

GradingMode = Literal["binary", "fraction"]
MODES: Final[tuple[GradingMode, ...]] = get_args(GradingMode)


class UnknownInstruction(ValueError):
    """An unknown instruction id; the text is one clause."""


def bind(name: str, given: Mapping[str, Any], as_ifeval: bool = False) -> Check:
    """The check of an instruction with a task's arguments; `as_ifeval`: by IFEval's own rule.

    Raises `UnknownInstruction`, or `ArgumentError` for arguments that are missing or wrong.
    """
    if name not in INSTRUCTIONS:
        near = difflib.get_close_matches(name, INSTRUCTIONS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UnknownInstruction(f"is {name!r}, which is not a known instruction{hint}")
    ours = INSTRUCTIONS[name]
    check, kinds = REFERENCE.get(name, ours) if as_ifeval else ours
    values = read(kinds, given)
    return lambda text: check(text, **values)


def followed(text: str, checks: Sequence[Check]) -> list[bool]:
    """For each instruction whether the response follows it."""
    if not text.strip():
        return [False] * len(checks)
    return [bool(check(text)) for check in checks]


def followed_by(text: str, bound: Bound, as_ifeval: bool = False) -> list[bool]:
    """`followed` in a form that a worker process can be sent."""
    return followed(text, [bind(name, arguments, as_ifeval) for name, arguments in bound])


def reward(followed: Sequence[bool], mode: GradingMode) -> float:
    """binary: 1.0 if all are followed, otherwise 0.0. fraction: the share that is followed."""
    if not followed:
        return 0.0
    return float(all(followed)) if mode == "binary" else sum(followed) / len(followed)
