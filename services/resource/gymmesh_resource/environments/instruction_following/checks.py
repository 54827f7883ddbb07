"""The instructions that can be checked, and a check with a task's arguments."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from . import formats, lengths, words  # noqa: F401  # they register themselves
from .arguments import read
from .registry import INSTRUCTIONS

Check: TypeAlias = Callable[[str], bool]
"""Whether a response follows an instruction with its arguments."""


class UnknownInstruction(ValueError):
    """An id that no check is for; the text is a clause about it."""


def identifiers() -> list[str]:
    """The ids of all instructions there are."""
    return sorted(INSTRUCTIONS)


def bind(name: str, given: Mapping[str, Any]) -> Check:
    """The check of an instruction with a task's arguments.

    Raises `UnknownInstruction`, or `ArgumentError` for arguments that are missing or wrong.
    """
    if name not in INSTRUCTIONS:
        near = difflib.get_close_matches(name, INSTRUCTIONS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UnknownInstruction(f"names no instruction that can be checked: {name!r}{hint}")
    check, kinds = INSTRUCTIONS[name]
    values = read(kinds, given)
    return lambda text: check(text, **values)
