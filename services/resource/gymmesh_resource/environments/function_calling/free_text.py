"""Whether two sentences mean the same, for arguments that a task row declares as free text. Pure.

The rule: all words are the same, in the same order. Only differences that can't change the meaning
are allowed: articles, "that" and "please", upper and lower case, commas and full stops,
contractions, a time or place at the beginning instead of the end, and a few phrases ("let Anna
know" for "tell Anna"). The rule does not know the meaning of words: "on" and "off", "before" and
"after", two names, or "from Oslo to Lima" and "from Lima to Oslo" share all their other words. A
text that is not a sentence (a command, a title) is compared exactly.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from gymmesh_resource.environments.function_calling.comparison import equal_text

_WORD = re.compile(r"\w+(?:'\w+)?|\?")
_EDGES: Final = ".,;:!?\"'()"
# Marks of paths, options, addresses and code.
_SYMBOLS = re.compile(r"[/\\_@#$%=|<>*&{}\[\]~^+`]|^-|\w\.\w|\w:\w")
# A text without any of these is not a sentence.
_FUNCTION_WORDS: Final = frozenset(
    {"the", "a", "an", "to", "of", "and", "in", "for", "is", "are", "was", "on", "with", "that",
     "this", "it", "you", "i", "we", "my", "your", "our", "please", "be", "at", "from", "will"}
)  # fmt: skip
_LEFT_OUT: Final = frozenset({"the", "a", "an", "that", "please", "kindly"})
_PHRASES: Final = (
    (re.compile(r"\blet (\w+) know\b"), r"tell \1"),
    (re.compile(r"\b(call|phone|ring) (\w+) back\b"), r"\1 \2"),
    (re.compile(r"\bcan't\b"), "can not"),
    (re.compile(r"\bcannot\b"), "can not"),
    (re.compile(r"\bwon't\b"), "will not"),
    (re.compile(r"\b(\w+)n't\b"), r"\1 not"),
    (re.compile(r"\b(\w+)'ll\b"), r"\1 will"),
    (re.compile(r"\b(\w+)'re\b"), r"\1 are"),
    (re.compile(r"\bi'm\b"), "i am"),
    (re.compile(r"\b(it|there|here)'s\b(?! (?:been|got|had)\b)"), r"\1 is"),
)
# A time or place in front of a sentence.
_IN_FRONT = re.compile(
    r"((?:in|on|at|by|before|after|during) [^,;.?!]+), ([^,;.?!]+)([.!]?)\s*", re.IGNORECASE
)


def says_the_same(expected: str, actual: str) -> bool:
    """Whether the texts are the same, or are sentences that differ only in words that can't change
    the meaning.
    """
    if equal_text(expected, actual):
        return True
    expected, actual = _in_one_order(expected), _in_one_order(actual)
    if _exact_parts(expected) != _exact_parts(actual):
        return False
    wanted, given = _words(expected), _words(actual)
    if not (_FUNCTION_WORDS.intersection(wanted) and _FUNCTION_WORDS.intersection(given)):
        return False
    return _content(wanted) == _content(given)


def _in_one_order(text: str) -> str:
    """The text with a time or place that is in front at its end."""
    text = unicodedata.normalize("NFC", text)
    found = _IN_FRONT.fullmatch(text)
    return text if found is None else f"{found[2]} {found[1]}{found[3]}"


def _content(words: list[str]) -> list[str]:
    return [word for word in words if word not in _LEFT_OUT]


def _words(text: str) -> list[str]:
    """The words of a sentence in small letters, with phrases in one form."""
    text = text.replace("’", "'").casefold()
    for phrase, same in _PHRASES:
        text = phrase.sub(same, text)
    return _WORD.findall(text)


def _exact_parts(text: str) -> list[str]:
    """The numbers, dates, identifiers, paths and abbreviations, in order."""
    parts = (part.strip(_EDGES) for part in text.split())
    return [part for part in parts if _is_exact(part)]


def _is_exact(part: str) -> bool:
    is_abbreviation = len(part) > 1 and part.isupper()  # "US" is not "us"
    return is_abbreviation or any(map(str.isdigit, part)) or _SYMBOLS.search(part) is not None
