"""English words for numbers: seventy-two, two hundred, one and a half million. Pure.

Invariant: time is linear in the text.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

_ONES: Final = {word: number for number, word in enumerate((
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
))}  # fmt: skip
_TENS: Final = {word: 10 * number for number, word in enumerate((
    "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
), start=2)}  # fmt: skip
SCALES: Final = {
    "thousand": 3, "million": 6, "billion": 9, "trillion": 12, "quadrillion": 15,
    "quintillion": 18, "lakh": 5, "crore": 7,
}  # fmt: skip
_PARTS: Final = {
    "half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
    "eighth": 8, "ninth": 9, "tenth": 10, "hundredth": 100, "thousandth": 1000,
}  # fmt: skip
_PLURALS: Final = {"halves": "half"} | {f"{part}s": part for part in _PARTS if part != "half"}
_DOZENS: Final = ("dozen", "dozens")
# Parts that are no things to be counted, as quarters and halves of a game are.
_COUNTED_PARTS: Final = {name: part for name, part in _PARTS.items() if part > 2 and part != 4} | {
    "fourth": 4
}
_SIGNS: Final = {"minus": -1, "negative": -1, "plus": 1}
_LONGEST, _MOST = 200, 30
_SPLIT = re.compile(r"[\s-]+")


def number_of_words(text: str) -> Fraction | None:
    """The number that the words of the whole text mean; None for any other text."""
    if len(text) > _LONGEST or not text.replace("-", "").replace(" ", "").isalpha():
        return None
    said = _SPLIT.split(text.casefold().strip())
    if len(said) > _MOST or text.startswith("-") or text.endswith("-"):
        return None
    sign = _SIGNS.get(said[0], 0)
    value = _value(said[1:] if sign else said)
    return None if value is None else value * (sign or 1)


def factor_of(word: str) -> Fraction | None:
    """What a word behind digits multiplies them by: million, dozen, tenths; None for others."""
    name = word.casefold()
    single = name.removesuffix("s")
    if name in _DOZENS:
        return Fraction(12)
    if single == "hundred":
        return Fraction(100)
    if single in SCALES:
        return Fraction(10) ** SCALES[single]
    return Fraction(1, _COUNTED_PARTS[single]) if single in _COUNTED_PARTS else None


def _value(said: list[str]) -> Fraction | None:
    if said and said[-1] in _DOZENS:
        count = _value(["one"] if said[:-1] in ([], ["a"]) else _without_article(said[:-1]))
        return None if count is None else 12 * count
    scale, kept = 0, list(said)
    while kept and kept[-1] in SCALES:
        scale += SCALES[kept.pop()]
    if scale and kept[-2:] == ["half", "a"]:
        kept.pop()
    share = _share(kept) if kept else None
    if share is not None:
        return share * Fraction(10) ** scale
    whole = _whole(said)
    return None if whole is None else Fraction(whole)


def _without_article(said: list[str]) -> list[str]:
    """Half a dozen is half of one."""
    return said[:-1] if said[-2:] == ["half", "a"] else said


def _share(said: list[str]) -> Fraction | None:
    """Two thirds, a half, one and a half; None for other words."""
    *above, last = said
    name = _PLURALS.get(last, last)
    if name not in _PARTS:
        return None
    if "and" in above:
        at = len(above) - 1 - above[::-1].index("and")
        whole, share = _whole(above[:at]), _share([*above[at + 1 :], last])
        return whole + share if whole is not None and share is not None and share < 1 else None
    count = 1 if above == ["a"] or (not above and name == "half") else _whole(above)
    return Fraction(count, _PARTS[name]) if count else None


def _whole(said: list[str]) -> int | None:
    """Two hundred and five thousand three; None for other words."""
    total, last_scale, group = 0, 100, list[str]()
    for word in said:
        if word in SCALES:
            below = 1 if group == ["a"] else _below_thousand(group)
            if not below or SCALES[word] >= last_scale:
                return None
            total, last_scale, group = total + below * 10 ** SCALES[word], SCALES[word], []
        else:
            group.append(word)
    if not group:
        return total if said else None
    if total and group[0] == "and":
        group = group[1:]
    rest = _below_thousand(group)
    if rest is None or (total and not rest):
        return None
    return total + rest


def _below_thousand(said: list[str]) -> int | None:
    if "hundred" in said:
        at = said.index("hundred")
        before, behind = said[:at], said[at + 1 :]
        count = 1 if before == ["a"] else _below_hundred(before)
        if not count or (behind[:1] == ["and"] and not behind[1:]):
            return None
        behind = behind[1:] if behind[:1] == ["and"] else behind
        rest = _below_hundred(behind) if behind else 0
        return None if rest is None or (behind and not rest) else 100 * count + rest
    return _below_hundred(said)


def _below_hundred(said: list[str]) -> int | None:
    match said:
        case [one] if one in _ONES:
            return _ONES[one]
        case [ten] if ten in _TENS:
            return _TENS[ten]
        case [ten, one] if ten in _TENS and 0 < _ONES.get(one, 0) < 10:
            return _TENS[ten] + _ONES[one]
    return None
