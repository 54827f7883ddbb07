"""Whether two short answers say the same. Pure.

Invariant: time is linear in the answers, and an answer equals the expected one in one way only,
which is named: as a text, as a number, as a list, as a state.

- Two numbers with units are compared as such and in no other way: by their exact values, and by
  their units where both have one. Metric units and units of time are converted.
- Other texts are compared as they read without notation, marks and case.
- Lists are compared item by item, in order. A state of the USA and its code are the same.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from gymmesh_resource.environments._plain_text import plain, trimmed, without_question_mark
from gymmesh_resource.environments._quantities import Quantity, quantity

Way = Literal["text", "number", "list", "state"]

# Items of a list that are compared.
_ITEMS: Final = 1_000
_BETWEEN = re.compile(r"\s*[,;]\s*(?:and\s+)?|\s+and\s+|\s+&\s+", re.IGNORECASE)
_AMPERSAND = re.compile(r"\s*&\s*")
_COMMA = re.compile("[,;]")
_NAMES_OF_TWO = re.compile(r"[^,;&]+ & [^,;&]+")
_BRACKETS: Final = {"(": ")", "[": "]", "{": "}"}
_VARIABLE = re.compile(r"\A[A-Za-z]\s?=\s?(?=[^=])")

_CODES: Final = {
    "AL": "alabama", "AK": "alaska", "AZ": "arizona", "AR": "arkansas", "CA": "california",
    "CO": "colorado", "CT": "connecticut", "DC": "district of columbia", "DE": "delaware",
    "FL": "florida", "GA": "georgia", "HI": "hawaii", "IA": "iowa", "ID": "idaho",
    "IL": "illinois", "IN": "indiana", "KS": "kansas", "KY": "kentucky", "LA": "louisiana",
    "MA": "massachusetts", "MD": "maryland", "ME": "maine", "MI": "michigan", "MN": "minnesota",
    "MO": "missouri", "MS": "mississippi", "MT": "montana", "NC": "north carolina",
    "ND": "north dakota", "NE": "nebraska", "NH": "new hampshire", "NJ": "new jersey",
    "NM": "new mexico", "NV": "nevada", "NY": "new york", "OH": "ohio", "OK": "oklahoma",
    "OR": "oregon", "PA": "pennsylvania", "RI": "rhode island", "SC": "south carolina",
    "SD": "south dakota", "TN": "tennessee", "TX": "texas", "UT": "utah", "VA": "virginia",
    "VT": "vermont", "WA": "washington", "WI": "wisconsin", "WV": "west virginia",
    "WY": "wyoming",
}  # fmt: skip


def sameness(
    expected: str, answer: str, *, case_sensitive: bool = False, tolerance: float = 0.0
) -> Way | None:
    """In which way an answer is the expected one; None for another answer.

    `case_sensitive`: the answers must be the same to the letter, quotes, emphasis and a full stop
    around them aside. `tolerance`: largest relative difference of two numbers.
    """
    if case_sensitive:
        return "text" if trimmed(answer) == trimmed(expected) else None
    gold, answer = plain(expected), plain(answer)
    if gold.endswith("?"):
        gold, answer = without_question_mark(gold), without_question_mark(answer)
    # An answer that is many times as long says more than that.
    if len(answer) > 1_000 + 10 * len(gold):
        return None
    return _same(gold, answer, tolerance) or _same_lists(gold, answer, tolerance)


def _same(gold: str, answer: str, tolerance: float) -> Way | None:
    """The way in which two texts in one notation are the same, but for lists."""
    gold, answer = _AMPERSAND.sub("&", gold), _AMPERSAND.sub("&", answer)
    if gold == answer:
        return "text"
    if ("=" in gold) != ("=" in answer):  # x = 5 is 5
        gold, answer = _VARIABLE.sub("", gold), _VARIABLE.sub("", answer)
    gold, answer = _unwrapped(gold), _unwrapped(answer)
    right, given = quantity(gold), quantity(answer)
    if right is not None and given is not None:
        converted = given.in_unit_of(right)
        same = converted is not None and converted.is_near(right, tolerance)
        return "number" if same else None
    if _is_in_unit(right) or _is_in_unit(given):
        return None  # of the same letters, one is no number of a unit: 3 g is not 3 G
    if gold.casefold() == answer.casefold():
        return "text"
    if _state(gold) is not None and _state(gold) == _state(answer):
        return "state"
    return None


def _same_lists(gold: str, answer: str, tolerance: float) -> Way | None:
    wanted_kind, wanted = _list(gold)
    given_kind, given = _list(answer)
    if len(wanted) < 2 or len(wanted) != len(given):
        return None
    if any(map(_NAMES_OF_TWO.fullmatch, (gold, answer))) and _COMMA.search(gold + answer):
        return None  # Q & A may be a name
    if wanted_kind and given_kind and wanted_kind != given_kind:
        return None  # (0, 1) is not [0, 1]
    pairs = zip(wanted, given, strict=True)
    return "list" if all(_same(one, other, tolerance) for one, other in pairs) else None


def _list(text: str) -> tuple[str, list[str]]:
    """The brackets around a list, if any, and its items."""
    kind = ""
    if len(text) > 2 and text[0] in _BRACKETS and text[-1] in ")]}":
        kind, text = text[0] + text[-1], text[1:-1].strip()
    return kind, _BETWEEN.split(text, maxsplit=_ITEMS)


def _unwrapped(text: str) -> str:
    """Without the brackets around a single answer."""
    inner = text[1:-1].strip()
    if len(text) > 2 and text[0] == "(" and text[-1] == ")" and not set("(),;") & set(inner):
        return inner
    return text


def _is_in_unit(number: Quantity | None) -> bool:
    return number is not None and bool(number.unit) and not number.bound


def _state(text: str) -> str | None:
    """The state that a text names, by its code in capitals or by its name."""
    if text in _CODES:
        return _CODES[text]
    name = text.casefold()
    return name if len(text) > 3 and name in _NAMES else None


_NAMES: Final = frozenset(_CODES.values())
