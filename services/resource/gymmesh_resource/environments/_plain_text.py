"""Short answers in one notation, without marks around them and invisible characters. Pure.

Invariant: time is linear in the text, and texts that say different things stay different: 10² is
10^2, not 102.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_INVISIBLE: Final = dict.fromkeys(map(ord, "\u00ad\u200b\u200e\u200f\u2060\ufeff"))
_SAME: Final = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d", "-"),
        **dict.fromkeys("“”„‟«»＂", '"'),
        **dict.fromkeys("‘’‚‛", "'"),
        "÷": "/", "⁄": "/", "∘": "°", "…": "...",
    }
)  # fmt: skip
_SUPERSCRIPT = re.compile("[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_RAISED: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_VULGAR = re.compile("[¼½¾⅐-⅞]")
_THIN_GROUPS = re.compile("(?<=[0-9])[\u00a0\u2009\u202f](?=[0-9]{3}(?![0-9]))")

_COMMANDS: Final = ("boxed", "text", "textbf", "textit", "texttt", "mathrm", "mathbf", "mathit",
                    "mathsf", "mathbb", "mathcal", "operatorname", "emph", "url", "textrm",
                    "textsf", "textnormal", "mathnormal", "boldsymbol", "bm")  # fmt: skip
_TOKENS = re.compile(r"(\\(?:" + "|".join(_COMMANDS) + r")\s?\{)|(\{)|(\})")
_FRACTION = re.compile(r"\\[dt]?frac\s?\{([^{}]{1,100})\}\s?\{([^{}]{1,100})\}")
_SHORT_FRACTION = re.compile(r"\\[dt]?frac\s?([0-9])\s?([0-9])(?![0-9])")
_ROOT = re.compile(r"(?:\\sqrt\s?\{([^{}]{1,100})\}|√\s?([0-9]+|[A-Za-z]))")
_POWER = re.compile(r"\^\{([^{}])\}")
_SYMBOLS: Final = {
    r"\times": "×", r"\cdot": "·", r"\pi": "π", r"\infty": "∞", r"\leq": "≤", r"\geq": "≥",
    r"\le": "≤", r"\ge": "≥", r"\neq": "≠", r"\ne": "≠", r"\pm": "±", r"\circ": "°",
    r"\degree": "°", r"\left": "", r"\right": "", r"\displaystyle": "", r"\bf": "", r"\rm": "",
    r"\large": "", r"\Large": "", r"\LARGE": "", r"\huge": "", r"\Huge": "",
}  # fmt: skip
_NOTATION: Final = frozenset("\\${√")
_NAMED = re.compile("|".join(re.escape(name) + r"(?![A-Za-z])" for name in _SYMBOLS))
_ESCAPED = re.compile(r"\\([%$#&_{}])")
_SPACES = re.compile(r"\\[,;:! ]|\\quad(?![A-Za-z])|~")
_CUT_SPACE = re.compile(r"(?<!\\)\\\Z")
_DELIMITERS = re.compile(r"\\[()\[\]]")
_EMPHASIS = re.compile(r"(\*{1,3}|_{1,3}|`{1,3})(?=\S)(.*\S)\1", re.DOTALL)
_END_MARKS = re.compile(r"(?<=[^\W\d_]{2})!{1,20}\Z")
_QUESTION_MARKS = re.compile(r"[\s!]*\?[?!\s]*\Z")


def plain(text: str) -> str:
    """The text in one notation, its letters in the case they have."""
    if not text.isascii():
        text = _compatible(text)
    if not _NOTATION.isdisjoint(text):
        text = _without_latex(text)
    return _bare(" ".join(text.split()))


def without_question_mark(text: str) -> str:
    """The text without the marks at the end of a question. Of an answer they are part: "Lima?"
    asks, but where the expected text is a question, its mark may be missing.
    """
    return text[:-30] + _QUESTION_MARKS.sub("", text[-30:])


def trimmed(text: str) -> str:
    """The same characters without spaces, quotes and emphasis around them, and a last full stop."""
    return _bare(" ".join(unicodedata.normalize("NFC", text).split()))


def _compatible(text: str) -> str:
    text = text.translate(_INVISIBLE)
    text = _SUPERSCRIPT.sub(lambda found: "^" + found.group().translate(_RAISED), text)
    text = _VULGAR.sub(lambda found: " " + found.group(), text)
    text = _THIN_GROUPS.sub(",", text)
    return unicodedata.normalize("NFKC", text).translate(_SAME).replace("^°", "°")


def _without_latex(text: str) -> str:
    text = _CUT_SPACE.sub("", _without_commands(text.strip()))
    text = _SPACES.sub(" ", text.replace("{,}", ",").replace("\\!", ""))
    text = _SHORT_FRACTION.sub(r" \1/\2", _FRACTION.sub(_fraction, text))
    text = _ROOT.sub(lambda found: f"√({found[1] or found[2]})", text)
    text = _NAMED.sub(lambda found: _SYMBOLS[found.group()], text)
    text = _POWER.sub(r"^\1", text).replace("^°", "°")
    text = _without_dollars(_DELIMITERS.sub("", text))
    return _ESCAPED.sub(r"\1", text)


def _fraction(found: re.Match[str]) -> str:
    above, below = found.groups()
    simple = (above + below).isdigit()
    return f" {above}/{below}" if simple else f" ({above})/({below})"


def _without_dollars(text: str) -> str:
    """Without the dollars that mathematics stands between; an amount of money keeps its own."""
    escaped = text.replace("\\$", "\x00")
    if escaped.count("$") % 2 == 0:
        escaped = escaped.replace("$", "")
    return escaped.replace("\x00", "\\$")


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


def _bare(text: str) -> str:
    """Without quotes and emphasis around the whole, and without the marks that end a sentence."""
    for _ in range(3):  # "**Paris**." has three layers
        before = text
        if text.endswith(".") and not text.endswith(".."):
            text = text[:-1].rstrip()
        elif text.endswith("!"):
            text = text[:-30] + _END_MARKS.sub("", text[-30:])
        if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
            text = text[1:-1].strip()
        elif (found := _EMPHASIS.fullmatch(text)) is not None:
            text = found.group(2)
        if text == before:
            break
    return text or before
