"""When two JSON values are the same argument. Pure, and bounded by the expected value's size.

`difference` walks through both: objects have no order, lists do, and neither a string ("14") nor a
boolean is a number. Single values are compared by one of three rules: `equal`, `equal_text` and
NeMo Gym's `Likeness`.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Likeness:
    """The lax rule of NeMo Gym's single-step comparison.

    word_similarity: least share of common words, counted with repeats and divided by the words
        of both texts together: 0.5 for the same words in another order, 0 for any text.
    float_tolerance: largest difference of two numbers, exclusive, where one is a float.
    """

    word_similarity: float = 0.1
    float_tolerance: float = 1e-6

    def __call__(self, left: Any, right: Any) -> bool:
        """Whether two values of one kind are alike."""
        if isinstance(left, str):
            return share_words(left, right, self.word_similarity)
        return bool(left == right) or are_near(left, right, self.float_tolerance)


def equal(left: Any, right: Any) -> bool:
    """Whether two values are the same: 1 and 1.0 are one number, texts have the same characters."""
    return bool(left == right)


def equal_text(left: Any, right: Any) -> bool:
    """As `equal`, but for the ways in which Unicode writes one character: é may be two."""
    if left == right:
        return True
    both = isinstance(left, str) and not (left.isascii() and right.isascii())
    return both and unicodedata.normalize("NFC", left) == unicodedata.normalize("NFC", right)


def are_near(left: Any, right: Any, tolerance: float) -> bool:
    """Whether two numbers differ by less than `tolerance`, if one of them is a float."""
    if not (isinstance(left, float) or isinstance(right, float)):
        return False
    try:
        return bool(abs(left - right) < tolerance)
    except OverflowError:  # an integer beyond all floats
        return False


def share_words(expected: str, actual: str, least: float) -> bool:
    """Texts of one word must be equal; longer ones have enough words in common."""
    wanted, given = Counter(expected.lower().split()), Counter(actual.lower().split())
    if wanted.total() < 2 or given.total() < 2:
        return expected == actual
    return (wanted & given).total() / (wanted.total() + given.total()) >= least


def difference(
    expected: Any,
    actual: Any,
    rule: Callable[[Any, Any], bool] = equal,
    ignored: Collection[str] = (),
) -> str | None:
    """The difference of two JSON values; None if they are the same by the rule.

    One of "type", "keys", "length" and "value", for the first difference. `ignored`: keys whose
    values are not compared, but which both objects must have.
    """
    pairs = [(expected, actual)]
    while pairs:
        left, right = pairs.pop()
        if _kind(left) != _kind(right):
            return "type"
        if isinstance(left, dict):
            if left.keys() != right.keys():
                return "keys"
            pairs.extend((left[key], right[key]) for key in left if key not in ignored)
        elif isinstance(left, list):
            if len(left) != len(right):
                return "length"
            pairs.extend(zip(left, right, strict=True))
        elif not rule(left, right):
            return "value"
    return None


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__
