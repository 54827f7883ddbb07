"""What all corrections share. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

Scorer: TypeAlias = Callable[..., Any]
Correction: TypeAlias = Callable[[Scorer, str, dict[str, Any]], float]

#: The most that an answer which is not right gets.
NOT_RIGHT: Final = 0.99


def capped(value: float) -> float:
    """A score of the library for an answer that is not right."""
    return min(float(value), NOT_RIGHT)
