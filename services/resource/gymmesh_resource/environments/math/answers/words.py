"""Answers that are compared as text: words and names, dates, times of day. Pure."""

from __future__ import annotations

import re

from gymmesh_resource.environments.math.answers.expressions import FUNCTIONS, is_product

# More words than these are a sentence, which nobody writes in the same words.
MOST_WORDS = 3
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_MONTH = "|".join(f"{month}|{month[:3]}" for month in _MONTHS) + "|sept"
_ISO = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})")
_AMERICAN = re.compile(rf"({_MONTH})\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s+(\d{{4}}))?", re.I)
_EUROPEAN = re.compile(
    rf"(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({_MONTH})\.?(?:,?\s+(\d{{4}}))?", re.I
)
_NUMERIC = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")
_CLOCK = re.compile(r"(\d{1,2})(?::(\d{2}))?(?::(\d{2}))?\s*(?:([ap])\.?\s?m\.?)", re.IGNORECASE)
_BARE_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_TEXT = re.compile(r"\\text\s?\{([^{}]*)\}")
_NAME = re.compile(r"[A-Z]{2,}|[A-Z][a-z]+")
_SAME = {
    "dne": "does not exist", "all real numbers": "reals", "all reals": "reals",
    "no solutions": "no solution", "the empty set": "no solution", "empty set": "no solution",
}  # fmt: skip
_COMMAND = re.compile(r"\\(?:begin|end)\{[^{}]*\}|\\[a-zA-Z]+")
_PART = re.compile(r"[,;]|\b(?:and|or)\b")
_VERBS = {"is", "are", "was", "were", "be", "has", "have", "can", "cannot", "will"}
_ARTICLES = re.compile(r"^(?:an?|the) (?=\w)")


def read_date_or_time(text: str) -> str | None:
    """One spelling of a date or time of day; None for other texts."""
    text = " ".join(_TEXT.sub(r"\1", text).split())
    if found := _ISO.fullmatch(text):
        return _date(found[1], int(found[2]), found[3])
    if found := _AMERICAN.fullmatch(text):
        return _date(found[3], _month(found[1]), found[2])
    if found := _EUROPEAN.fullmatch(text):
        return _date(found[3], _month(found[2]), found[1])
    if found := _NUMERIC.fullmatch(text):
        return f"date {int(found[1])}/{int(found[2])}/{found[3]}"
    if found := _CLOCK.fullmatch(text):
        hour, minute = int(found[1]), int(found[2] or 0)
        if not 1 <= hour <= 12 or minute > 59:
            return None
        hour = hour % 12 + 12 * (found[4].lower() == "p")
        return f"time {hour:02}:{minute:02}" + (f":{found[3]}" if int(found[3] or 0) else "")
    return None


def read_bare_time(text: str) -> str | None:
    """One spelling of a time of day such as 14:30, which may be a ratio too."""
    found = _BARE_CLOCK.fullmatch(" ".join(_TEXT.sub(r"\1", text).split()))
    return f"time {int(found[1]):02}:{found[2]}" if found else None


def read_words(text: str) -> str | None:
    """One spelling of a word or a short name; None for what is neither: signs, a sentence.

    Capitals do not count in words of letters alone; they do in names with digits.
    """
    text = " ".join(_TEXT.sub(r" \1 ", text).replace("$", " ").split()).strip(" .,;:!\"'`*")
    if not text or any(letter in text for letter in "\\^{}=<>|") or len(text) > 100:
        return None
    if not any(letter.isalpha() for letter in text) or len(text.split()) > MOST_WORDS:
        return None
    if all(letter.isalpha() or letter in " -'" for letter in text) and len(text) > 1:
        text = _ARTICLES.sub("", text.casefold())
    return _SAME.get(text, text)


def read_name(text: str) -> str | None:
    """One spelling of letters that are a name, an order or a Roman numeral: BC, XL, Co.

    Several letters by themselves, all in capitals or the first alone; others are a product.
    """
    return text.casefold() if _NAME.fullmatch(text) else None


def is_sentence(text: str) -> bool:
    """Whether a text is more than a list of short names: words that nobody can match."""
    plain = _COMMAND.sub(" ", _TEXT.sub(r" \1 ", text))
    return any(_is_sentence(part) for part in _PART.split(plain) if part.strip()[:1].isalpha())


def has_words(text: str) -> bool:
    """Whether runs of letters of a text are words, rather than functions or variables."""
    return bool(_names(text))


def _is_sentence(part: str) -> bool:
    names = _names(part)
    ended = part.rstrip().endswith((".", "!", "?"))
    return len(names) > MOST_WORDS or (
        len(part.split()) >= MOST_WORDS and (ended or not _VERBS.isdisjoint(part.lower().split()))
    )


def _names(part: str) -> list[str]:
    return [
        word
        for word in re.findall(r"[^\W\d_]{2,}", part)
        if word not in FUNCTIONS and not is_product(word)
    ]


def _month(name: str) -> int:
    return next(at for at, month in enumerate(_MONTHS, 1) if month.startswith(name.lower()[:3]))


def _date(year: str | None, month: int, day: str) -> str | None:
    if not 1 <= month <= 12 or not 1 <= int(day) <= 31:
        return None
    return f"date {year or '----'}-{month:02}-{int(day):02}"
