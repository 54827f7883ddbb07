"""Grids and matrices. Pure but for the library's scorer."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from itertools import chain
from typing import Any, Final

from gymmesh_resource.environments.reasoning_gym.corrections.rounding import written_decimal
from gymmesh_resource.environments.reasoning_gym.corrections.scorer import (
    Scorer,
    capped,
)

_CELL: Final = Fraction(5, 10**3) + Fraction(1, 10**9)
_BITS: Final = re.compile(r"[\s01\[\],;|]*")
_NUMBERS: Final = re.compile(r"[\s0-9\[\],;|]*")
_BRACKETS: Final = re.compile(r"[\[\],;|]")


def arc(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer compares with tuples, which JSON made lists: no answer could be right."""
    metadata = dict(entry["metadata"])
    metadata["output"] = tuple(tuple(row) for row in metadata["output"])
    return float(scorer(answer=answer, entry={**entry, "metadata": metadata}))


def kakurasu(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer skips what is not 0 or 1: words and marks that deny the grid, other digits."""
    value = float(scorer(answer=answer, entry=entry))
    return value if _BITS.fullmatch(answer) else capped(value)


def survo(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer skips all but numbers: words that deny the grid, and numbers with a comma."""
    value = float(scorer(answer=_BRACKETS.sub(" ", answer), entry=entry))
    return value if _NUMBERS.fullmatch(answer) else capped(value)


def game_of_life(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer skips rows and cells that are too many."""
    value = float(scorer(answer=answer, entry=entry))
    if value < 1:
        return value
    return value if json.loads(answer) == json.loads(entry["answer"]) else capped(value)


def pool_matrix(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer takes numbers that are off by a hundredth, and skips what follows a `#`."""
    given, wanted = _cells(answer), _cells(entry["answer"])
    if given is None or wanted is None or list(map(len, given)) != list(map(len, wanted)):
        return capped(scorer(answer=answer, entry=entry))
    pairs = zip(chain(*given), chain(*wanted), strict=True)
    if all(abs(one - other) <= _CELL for one, other in pairs):
        return 1.0
    return capped(scorer(answer=answer, entry=entry))


def _cells(text: str) -> list[list[Fraction]] | None:
    """The numbers of each line; None where a line has something else."""
    lines = [_BRACKETS.sub(" ", line).split() for line in text.splitlines()]
    read = [[written_decimal(cell) for cell in line] for line in lines if line]
    cells = [[cell.value for cell in line if cell is not None] for line in read]
    return cells if list(map(len, cells)) == list(map(len, read)) else None
