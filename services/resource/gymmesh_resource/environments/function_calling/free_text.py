"""Whether two sentences say nearly the same, for arguments that a task row calls free text. Pure.

Words alone may differ: numbers, dates, names, identifiers and negations must be the same, and a
text that is not a sentence (a command, a title) is compared exactly. What two different words mean
is not known here, so a row should ask for it only where any wording will do.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from .comparison import equal_text

_WORD = re.compile(r"\w+(?:'\w+)?")
_EDGES: Final = ".,;:!?\"'()"
# Marks of paths, options, addresses and code.
_SYMBOLS = re.compile(r"[/\\_@#$%=|<>*&{}\[\]~^+`]|^-|\w\.\w|\w:\w")
_NEGATIONS: Final = frozenset(
    {"no", "not", "never", "none", "nobody", "nothing", "neither", "nor", "without", "cannot",
     "except", "unless", "don't", "doesn't", "didn't", "isn't", "aren't", "wasn't", "won't",
     "can't", "shouldn't", "mustn't"}
)  # fmt: skip
_NUMBERS: Final = frozenset(
    {"one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
     "twelve", "half", "first", "second", "third", "monday", "tuesday", "wednesday", "thursday",
     "friday", "saturday", "sunday", "today", "tomorrow", "yesterday", "am", "pm"}
)  # fmt: skip
# A text without any of these is not a sentence.
_FUNCTION_WORDS: Final = frozenset(
    {"the", "a", "an", "to", "of", "and", "in", "for", "is", "are", "was", "on", "with", "that",
     "this", "it", "you", "i", "we", "my", "your", "our", "please", "be", "at", "from", "will"}
)  # fmt: skip


def says_the_same(expected: str, actual: str, least: float) -> bool:
    """Whether the texts are the same, or sentences with enough words and all facts in common.

    `least`: least share of common words, without those such as "the", counted with repeats and
        divided by the words of both texts together; 0.5 for the same words.
    """
    if equal_text(expected, actual):
        return True
    wanted, given = _words(expected), _words(actual)
    if not (_FUNCTION_WORDS & wanted.keys() and _FUNCTION_WORDS & given.keys()):
        return False
    if _exact_parts(expected) != _exact_parts(actual):
        return False
    if any(wanted[word] != given[word] for word in _NEGATIONS | _NUMBERS):
        return False
    named, also_named = _names(expected), _names(actual)
    if not (named <= given.keys() and also_named <= wanted.keys()):
        return False
    content, also_content = _content(wanted), _content(given)
    common = (content & also_content).total()
    return common >= least * (content.total() + also_content.total())


def _content(words: Counter[str]) -> Counter[str]:
    """The words that say something on their own; numbers are compared elsewhere."""
    return Counter(
        {
            word: number
            for word, number in words.items()
            if word not in _FUNCTION_WORDS and not any(map(str.isdigit, word))
        }
    )


def _words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.replace("’", "'").casefold()))


def _exact_parts(text: str) -> list[str]:
    """The numbers, dates, identifiers and paths, in order."""
    parts = [part.strip(_EDGES) for part in text.split()]
    return [part for part in parts if any(map(str.isdigit, part)) or _SYMBOLS.search(part)]


def _names(text: str) -> set[str]:
    """The words in capitals that do not begin a sentence."""
    names: set[str] = set()
    begins = True
    for part in text.split():
        bare = part.strip(_EDGES)
        if bare[:1].isupper() and bare != "I" and (not begins or bare[1:] != bare[1:].lower()):
            names.update(_WORD.findall(bare.casefold()))
        begins = part.endswith((".", "!", "?", ":"))
    return names
