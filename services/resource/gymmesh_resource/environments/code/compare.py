"""Whether a program's output or a function's value is the expected one. Pure.

The rules are those of NeMo Gym's code_gen. Lines are stripped and compared one by one, or number by
number. A function's value is compared as it is, as JSON, or as a number. This module is sent into a
sandbox, so it imports no other module of gymmesh.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal, InvalidOperation

TYPE_CHECKING = False  # importing typing takes longer than all of the rest
if TYPE_CHECKING:
    from typing import Any

_RELATIVE, _ABSOLUTE = 1e-5, 1e-8


def same_output(actual: str, expected: str) -> bool:
    """Whether two outputs agree: the same number of lines, each equal or with equal numbers."""
    ours, theirs = _lines(actual), _lines(expected)
    return len(ours) == len(theirs) and all(map(_same_line, ours, theirs))


def same_value(actual: Any, expected: Any) -> bool:
    """Whether a function's value is the expected one, which was read from JSON.

    A tuple is compared as a list, and the text of a number as the number. If one of two numbers is
    a fraction, they agree within 1e-5 relative and 1e-8 absolute. Whole numbers must be equal.
    """
    if isinstance(actual, tuple):
        actual = list(actual)
    try:
        if bool(actual == expected) or json.dumps(actual) == json.dumps(expected):
            return True
    except (TypeError, ValueError, ArithmeticError, RecursionError):
        pass
    try:
        return _close(_number(actual), _number(expected))
    except (TypeError, ValueError, ArithmeticError):
        return False


def _close(ours: float, theirs: float) -> bool:
    if isinstance(ours, int) and isinstance(theirs, int):
        return ours == theirs
    ours, theirs = float(ours), float(theirs)
    if not (math.isfinite(ours) and math.isfinite(theirs)):
        return ours == theirs  # a tolerance relative to an infinity would accept every number
    return abs(ours - theirs) <= _ABSOLUTE + _RELATIVE * abs(theirs)


def _number(value: Any) -> float:
    """The number that a value is or is the text of. Raises as `float` does."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str | bytes):
        try:
            return int(value)
        except ValueError:
            pass  # text of a fraction
    return float(value)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_line(actual: str, expected: str) -> bool:
    if actual == expected:
        return True
    ours, theirs = actual.split(), expected.split()
    try:
        return len(ours) == len(theirs) and all(
            Decimal(one) == Decimal(other) for one, other in zip(ours, theirs, strict=True)
        )
    except (InvalidOperation, ArithmeticError, ValueError):
        return False  # no numbers
