"""Whether a message states a fact: an order number, an amount, a phrase. Pure.

A fact is found as it is written, but for case, spacing, typographic marks and invisible
characters; not inside of a longer word or number. "$15" is not in "$150", "$15.50", "$1,015" or
"-$15"; it is in "$15.00".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from gymmesh_resource.environments._whole_words import stands_alone

_ALIKE = str.maketrans(
    "\N{RIGHT SINGLE QUOTATION MARK}\N{LEFT SINGLE QUOTATION MARK}"
    "\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}"
    "\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{EN DASH}\N{EM DASH}\N{MINUS SIGN}",
    "''\"\"-----",
    "*`",  # emphasis and code marks
)
# The format characters (Unicode's category Cf), variation selectors too.
_INVISIBLE = re.compile(
    "[\u00ad\u0600-\u0605\u061c\u06dd\u070f\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000e0001\U000e0020-\U000e007f]"
)


def spoken(message: str) -> str:
    """What a model says in a message: without its thoughts, finished or not."""
    _, _, answer = message.rpartition("</think>")
    return answer.partition("<think>")[0]


def normalised(text: str) -> str:
    """The text in the form in which facts are compared."""
    text = unicodedata.normalize("NFKC", text).translate(_ALIKE)
    return " ".join(_INVISIBLE.sub("", text).casefold().split())


def states(message: str, facts: Sequence[str]) -> bool:
    """Whether a normalised message has one of these facts, each of them normalised."""
    return any(_has(message, fact) for fact in facts)


def _has(message: str, fact: str) -> bool:
    at = message.find(fact)
    while at >= 0:
        if stands_alone(message, at, at + len(fact)):
            return True
        at = message.find(fact, at + 1)
    return False
