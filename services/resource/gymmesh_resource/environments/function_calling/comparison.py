"""When two JSON values are the same argument. Pure, and bounded by the expected value's size.

`same` compares exactly: objects have no order, lists do, 1 and 1.0 are one number, and neither a
string ("14") nor a boolean is a number. `alike` is the laxer rule of NeMo Gym's single-step
comparison: texts are alike when they share enough words, floats within a tolerance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Likeness:
    """How lax `alike` is.

    word_similarity: least share of common words, counted with repeats and divided by the words
        of both texts together: 0.5 for the same words in another order, 0 for any text.
    float_tolerance: largest difference of two numbers, exclusive, where one is a float.
    ignored: keys whose values are not compared; they must be there all the same.
    """

    word_similarity: float = 0.1
    float_tolerance: float = 1e-6
    ignored: Collection[str] = ()


def same(expected: Any, actual: Any) -> bool:
    """Whether two JSON values are equal, numbers by their value."""
    return alike(expected, actual, None) is None


def alike(expected: Any, actual: Any, likeness: Likeness | None) -> str | None:
    """What sets two JSON values apart, or None when they are alike; without a likeness, the same.

    One of "type", "keys", "length" and "value", for the first difference that is found.
    """
    pairs = [(expected, actual)]
    while pairs:
        left, right = pairs.pop()
        if _kind(left) != _kind(right):
            return "type"
        if isinstance(left, dict):
            if left.keys() != right.keys():
                return "keys"
            ignored = likeness.ignored if likeness else ()
            pairs.extend((left[key], right[key]) for key in left if key not in ignored)
        elif isinstance(left, list):
            if len(left) != len(right):
                return "length"
            pairs.extend(zip(left, right, strict=True))
        elif not (_alike_values(left, right, likeness) if likeness else left == right):
            return "value"
    return None


def _alike_values(left: Any, right: Any, likeness: Likeness) -> bool:
    if isinstance(left, str):
        return _share_words(left, right, likeness.word_similarity)
    if left == right:
        return True
    if not (isinstance(left, float) or isinstance(right, float)):
        return False
    try:
        return bool(abs(left - right) < likeness.float_tolerance)
    except OverflowError:  # an integer beyond all floats
        return False


def _share_words(expected: str, actual: str, least: float) -> bool:
    """Texts of one word must be equal; longer ones have enough words in common."""
    wanted, given = Counter(expected.lower().split()), Counter(actual.lower().split())
    if wanted.total() < 2 or given.total() < 2:
        return expected == actual
    return (wanted & given).total() / (wanted.total() + given.total()) >= least


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__
