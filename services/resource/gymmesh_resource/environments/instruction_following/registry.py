"""Where the checks of instructions register themselves, by the instructions' ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .arguments import ArgumentKind

INSTRUCTIONS: Final[dict[str, tuple[Callable[..., bool], dict[str, ArgumentKind]]]] = {}
"""Each instruction's check, and the kinds of its arguments."""


def instruction(
    *ids: str, **kinds: ArgumentKind
) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    """Register a check under its ids, with the kinds of its arguments.

    The check takes the response's text and the arguments by name.
    """

    def register(check: Callable[..., bool]) -> Callable[..., bool]:
        for name in ids:
            INSTRUCTIONS[name] = (check, kinds)
        return check

    return register
