"""Whether a program's output or a function's value is the expected one. Pure.

Lines are stripped and compared one by one, or number by number. A function's value has a type: a
text equals only a text, a number only a number. With `nemo`, the rules are those of NeMo Gym's
code_gen. This module is sent into a sandbox, so it imports no other module of gymmesh.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal, InvalidOperation
from numbers import Number

TYPE_CHECKING = False  # importing typing takes longer than all of the rest
if TYPE_CHECKING:
    from typing import Any

_RELATIVE, _ABSOLUTE = 1e-5, 1e-8
# The most that a value may differ from a whole number: a count that is off by one is wrong.
_WHOLE = 1e-3


def same_output(actual: str, expected: str, nemo: bool = False) -> bool:
    """Whether two outputs agree: the same number of lines, each equal or with equal numbers."""
    ours, theirs = _lines(actual), _lines(expected)
    return len(ours) == len(theirs) and all(
        _same_line(one, other, nemo) for one, other in zip(ours, theirs, strict=True)
    )


def same_value(actual: Any, expected: Any, nemo: bool = False) -> bool:
    """Whether a function's value is the expected one, which was read from JSON.

    A tuple is compared as a list, and a dictionary's keys are compared as JSON writes them. If one
    of two numbers is a fraction, they agree within 1e-5 relative and 1e-8 absolute. Whole numbers
    must be equal.
    """
    return _same_for_nemo(actual, expected) if nemo else _same(actual, expected)


def _same(actual: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return (
            isinstance(actual, list | tuple)
            and len(actual) == len(expected)
            and all(map(_same, actual, expected))
        )
    if isinstance(expected, dict):
        return isinstance(actual, dict) and _same_dict(actual, expected)
    if isinstance(expected, bool) or not isinstance(expected, int | float):
        return type(actual) is type(expected) and bool(actual == expected)
    return (
        isinstance(actual, Number)
        and not isinstance(actual, bool)
        and _same_number(actual, expected)
    )


def _same_dict(actual: dict[Any, Any], expected: dict[str, Any]) -> bool:
    named = {_key(key): value for key, value in actual.items()}
    return (
        len(named) == len(actual)
        and named.keys() == expected.keys()
        and all(_same(named[key], value) for key, value in expected.items())
    )


def _key(key: Any) -> Any:
    """A key as JSON writes it; one that JSON cannot write equals no expected key."""
    if key is None or isinstance(key, int | float):
        return json.dumps(key)
    return key


def _same_number(actual: Any, expected: float) -> bool:
    if actual == expected or (actual != actual and expected != expected):  # NaN
        return True
    try:
        near = _close(actual if isinstance(actual, int) else float(actual), expected)
        return near and (isinstance(expected, float) or abs(actual - expected) <= _WHOLE)
    except (TypeError, ValueError, ArithmeticError):
        return False


def _same_for_nemo(actual: Any, expected: Any) -> bool:
    """NeMo Gym's rule: the text of a number is the number, and truth values are numbers."""
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


def _same_line(actual: str, expected: str, nemo: bool) -> bool:
    if actual == expected:
        return True
    ours, theirs = actual.split(), expected.split()
    try:
        return len(ours) == len(theirs) and all(
            Decimal(one) == Decimal(other)
            and (nemo or one == other or (_is_number(one) and _is_number(other)))
            for one, other in zip(ours, theirs, strict=True)
        )
    except (InvalidOperation, ArithmeticError, ValueError):
        return False  # no numbers


def _is_number(word: str) -> bool:
    """Whether a word that Python reads as a number is one for others, too: not 1_000, not 007."""
    digits = word.lstrip("+-")
    return "_" not in word and not (digits.startswith("0") and digits[1:2].isdigit())
