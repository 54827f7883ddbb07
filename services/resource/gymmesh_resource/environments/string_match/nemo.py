r"""NeMo Gym's own verdicts on short answers, right or wrong: for `compat: nemo` alone.

Invariant: time is linear in the answers.

Case and compatible characters never matter, nor quotes around an answer or its last full stop.
Each of the readings below is tried on both answers; the same reading is a reward of 1.0, and
numbers within about 1 % of each other are one of 0.98.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final

from gymmesh_resource.environments.string_match.extraction import (
    ExtractionMode,
    last_box,
    last_line,
)

CLOSE: Final = 0.98
"""The reward of a number that is nearly right."""

_COMMANDS = ("boxed", "text", "textbf", "textit", "texttt", "mathrm", "mathbf", "mathit",
             "mathsf", "mathbb", "mathcal", "emph", "url")  # fmt: skip
_TOKENS = re.compile(r"(\\(?:" + "|".join(_COMMANDS) + r")\{)|(\{)|(\})")
_DELIMITERS = re.compile(r"\\[()\[\]]|\$")
# From the first digit of a number on only, or a long one would be tried from each of its digits.
_GROUPED = re.compile(r"(?<!\d)(\d++),(\d++)")
_UNITS = re.compile(r"\^\{?\\circ\}?|\\circ|°|cm[²³]?|mm|km|m[²³]?|kg")
_SYMBOLS: Final = str.maketrans(
    {"°": "^\\circ", "√": "\\sqrt", "π": "\\pi", "﹣": "-", "﹢": "+", "﹦": "=", "﹤": "<",
     "﹥": ">", "：": ":"}
    | {power: f"^{digit}" for digit, power in enumerate("²³⁴⁵⁶⁷⁸⁹", start=2)}
)  # fmt: skip
_MONEY: Final = str.maketrans("", "", "$£€%,")

# The names that contain another one come first: "west virginia" before "virginia".
_STATES = {
    "district of columbia": "DC", "new hampshire": "NH", "new jersey": "NJ", "new mexico": "NM",
    "new york": "NY", "north carolina": "NC", "north dakota": "ND", "rhode island": "RI",
    "south carolina": "SC", "south dakota": "SD", "west virginia": "WV", "alabama": "AL",
    "alaska": "AK", "arizona": "AZ", "arkansas": "AR", "california": "CA", "colorado": "CO",
    "connecticut": "CT", "delaware": "DE", "florida": "FL", "georgia": "GA", "hawaii": "HI",
    "idaho": "ID", "illinois": "IL", "indiana": "IN", "iowa": "IA", "kansas": "KS",
    "kentucky": "KY", "louisiana": "LA", "maine": "ME", "maryland": "MD", "massachusetts": "MA",
    "michigan": "MI", "minnesota": "MN", "mississippi": "MS", "missouri": "MO", "montana": "MT",
    "nebraska": "NE", "nevada": "NV", "ohio": "OH", "oklahoma": "OK", "oregon": "OR",
    "pennsylvania": "PA", "tennessee": "TN", "texas": "TX", "utah": "UT", "vermont": "VT",
    "virginia": "VA", "washington": "WA", "wisconsin": "WI", "wyoming": "WY",
}  # fmt: skip


_FINAL = re.compile(r"(?:final\s+answer|answer)\s*[:：]\s*(.+)", re.IGNORECASE)


def extract(text: str, mode: ExtractionMode) -> str | None:
    """The answer as the model wrote it, without spaces around it; None where there is none."""
    match mode:
        case "boxed":
            return last_box(text)
        case "final_answer":
            answer = _final_answer(text)
            return last_box(text) if answer is None else answer
        case "last_line":
            return last_line(text)
        case "full_response":
            return text.strip() or None


def _final_answer(text: str) -> str | None:
    last = None
    for match in _FINAL.finditer(text):
        last = match.group(1)
    if last is None:
        return None
    return last.strip().removesuffix(".").strip().rstrip(".")


def grade(expected: str, answer: str, *, case_sensitive: bool = False) -> float:
    """The reward of an answer: 1.0, 0.98 or 0.0.

    `case_sensitive`: the answers must be the same to the letter, spaces around them aside.
    """
    if case_sensitive:
        return float(answer.strip() == expected.strip())
    gold, answer = _trimmed(expected), _trimmed(answer)
    if any(reading(answer) == reading(gold) for reading in _READINGS):
        return 1.0
    if _nearly(answer, gold):
        return CLOSE
    gold, answer = _without_units(gold), _without_units(answer)
    if answer == gold:
        return 1.0
    return CLOSE if _nearly(answer, gold) else 0.0


def _trimmed(text: str) -> str:
    text = unicodedata.normalize("NFKC", text)
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    text = text.lower()
    return text.rstrip(".!?") or text


def _as_number(text: str) -> str:
    bare = text.replace("\\%", "").replace("\\$", "").replace("$", "").strip()
    try:
        return str(float(bare))
    except ValueError:
        return text


def _with_plain_digits(text: str) -> str:
    return _GROUPED.sub(r"\1\2", text).replace("\\%", "%")


def _as_words(text: str) -> str:
    """Without the separators of a list, unless little else would be left of the text."""
    words = text.replace(",", " ").replace(";", " ").replace("and", " ").replace("or", " ")
    return text if len(words) < 0.9 * len(text) else " ".join(words.split())


def _without_latex(text: str) -> str:
    return " ".join(_DELIMITERS.sub("", _without_commands(text)).split())


def _without_commands(text: str) -> str:
    r"""The text with ``\text{…}`` and its like replaced by what they hold."""
    dropped: list[tuple[int, int]] = []
    opened: list[bool] = []
    for token in _TOKENS.finditer(text):
        if token.group(3) is None:
            opened.append(token.group(1) is not None)
            if opened[-1]:
                dropped.append(token.span())
        elif opened and opened.pop():
            dropped.append(token.span())
    kept, position = [], 0
    for start, end in dropped:
        kept.append(text[position:start])
        position = end
    return "".join((*kept, text[position:]))


def _with_state_codes(text: str) -> str:
    for name, code in _STATES.items():
        text = text.replace(name, code)
    return _as_words(text).lower()


_READINGS: Final[tuple[Callable[[str], str], ...]] = (
    str,
    _as_number,
    _with_plain_digits,
    _without_latex,
    _as_words,
    _with_state_codes,
)


def _without_units(text: str) -> str:
    return _UNITS.sub("", _without_latex(text).translate(_SYMBOLS)).strip()


def _nearly(answer: str, gold: str) -> bool:
    """Whether both are numbers, units and currency aside, and the square of 1 less the relative
    error is over 0.98.
    """
    try:
        value, right = float(_bare(answer)), float(_bare(gold))
    except ValueError:
        return False
    error = abs(value - right) / max(abs(right), 1e-9)
    return 1.0 - error > 0.0 and (1.0 - error) ** 2 > CLOSE


def _bare(text: str) -> str:
    return _UNITS.sub("", text.translate(_MONEY).translate(_SYMBOLS)).strip()
