r"""Patterns of JSON Schema, which are ECMA 262's, as patterns of Python's `re`. Pure.

What differs: ``$`` is the end of the text and not the place before a last line break, ``\d``,
``\w`` and ``\b`` know ASCII alone, ``\s`` has its own characters, ``.`` stops at four line breaks,
``\Z`` and ``\A`` are letters, and ``(?P<…>)``, ``(?i)`` and possessive quantifiers do not exist.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache
from typing import Final

_SPACES: Final = r"\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_ANY: Final = r"[\u0000-\U0010ffff]"
_DOT: Final = r"[^\n\r\u2028\u2029]"
_KEPT: Final = {"t", "n", "v", "f", "r"}
_QUANTIFIER = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})")
_GROUP = re.compile(r"\((?:\?(?::|=|!|<=|<!|[ims]+:|<(?P<name>[A-Za-z_$][\w$]*)>))?")
_HEX = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}")
_PROPERTY = re.compile(r"([pP])\{(?:(?:General_Category|gc)=)?(\w+)\}")
_CATEGORIES: Final = {
    "Letter": "L", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Number": "N",
    "Decimal_Number": "Nd", "Punctuation": "P", "Symbol": "S", "Separator": "Z",
    "Space_Separator": "Zs", "Mark": "M", "Other": "C", "Control": "Cc",
}  # fmt: skip


class PatternError(ValueError):
    """A text that is not a pattern of ECMA 262, or that Python's `re` cannot express."""


def python_pattern(pattern: str) -> str:
    """The same pattern for `re.search`. Raises `PatternError`."""
    parts: list[str] = []
    place = 0
    while place < len(pattern):
        part, place = _part(pattern, place)
        parts.append(part)
    translated = f"(?a:{''.join(parts)})"
    try:
        re.compile(translated)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"{pattern[:100]!r}: {error}") from None
    return translated


def _part(pattern: str, place: int) -> tuple[str, int]:
    """The next part in Python's notation, and where it ends."""
    match pattern[place]:
        case "\\":
            return _escape(pattern, place + 1, in_class=False)
        case "[":
            return _class(pattern, place)
        case "(":
            return _group(pattern, place)
        case "$":
            return r"\Z", place + 1
        case ".":
            return _DOT, place + 1
        case "*" | "+" | "?" | "{":
            return _quantifier(pattern, place)
        case "]":
            return r"\]", place + 1
        case other:
            return other, place + 1


def _group(pattern: str, place: int) -> tuple[str, int]:
    found = _GROUP.match(pattern, place)
    if found is None or (found.group() == "(" and pattern.startswith("(?", place)):
        raise PatternError(f"{pattern[place : place + 5]!r} is not valid in ECMA 262")
    if (name := found["name"]) is not None:
        return f"(?P<{name.replace('$', '_')}>", found.end()
    return found.group(), found.end()


def _quantifier(pattern: str, place: int) -> tuple[str, int]:
    found = _QUANTIFIER.match(pattern, place)
    if found is None:
        return r"\{", place + 1
    end = found.end()
    if pattern.startswith("?", end):
        end += 1
    if _QUANTIFIER.match(pattern, end):
        raise PatternError(f"{pattern[place : end + 1]!r} repeats a part that is already repeated")
    return pattern[place:end], end


def _escape(pattern: str, place: int, *, in_class: bool) -> tuple[str, int]:
    """An escape by what follows the backslash."""
    if place >= len(pattern):
        raise PatternError("ends in a backslash")
    letter, after = pattern[place], place + 1
    if found := _HEX.match(pattern, place):
        return _character(pattern, found)
    if letter in "pP":
        return _property(pattern, place, in_class=in_class)
    if letter in "dDwW" or letter in _KEPT:
        return f"\\{letter}", after
    if letter == "s":
        return (_SPACES if in_class else f"[{_SPACES}]"), after
    if letter == "S":  # in a class by Python's spaces of ASCII
        return (r"\S" if in_class else f"[^{_SPACES}]"), after
    if letter in "bB":
        return (r"\x08" if in_class else f"\\{letter}"), after
    if letter == "0":
        return r"\x00", after
    if letter == "c" and pattern[after : after + 1].isalpha():
        return f"\\x{ord(pattern[after]) % 32:02x}", after + 1
    if letter.isdecimal() and letter.isascii() and not in_class:
        found = re.compile("[0-9]+").match(pattern, place)
        return (f"(?:\\{found.group()})", found.end()) if found else ("", after)
    if letter == "k" and (name := re.compile(r"k<([\w$]+)>").match(pattern, place)):
        return f"(?P={name[1].replace('$', '_')})", name.end()
    return re.escape(letter), after


def _character(pattern: str, found: re.Match[str]) -> tuple[str, int]:
    """A character by its number; two surrogates are one."""
    code, end = int(found[1] or found[2] or found[3], 16), found.end()
    if 0xD800 <= code < 0xDC00 and pattern.startswith("\\u", end):
        low = _HEX.match(pattern, end + 1)
        if low and low[2] and 0xDC00 <= int(low[2], 16) < 0xE000:
            code = 0x10000 + ((code - 0xD800) << 10) + int(low[2], 16) - 0xDC00
            end = low.end()
    if code > sys.maxunicode:
        raise PatternError(f"{found.group()!r} is not a character")
    return f"\\U{code:08x}", end


def _property(pattern: str, place: int, *, in_class: bool) -> tuple[str, int]:
    found = _PROPERTY.match(pattern, place)
    if found is None:
        return re.escape(pattern[place]), place + 1
    ranges = _ranges(_CATEGORIES.get(found[2], found[2]))
    if not ranges or (in_class and found[1] == "P"):
        raise PatternError(f"\\{found.group()} is a property that is not supported")
    if in_class:
        return ranges, found.end()
    return f"[{'^' if found[1] == 'P' else ''}{ranges}]", found.end()


@lru_cache(64)
def _ranges(category: str) -> str:
    """The characters of a general category as the inside of a class; empty: there is none."""
    if not re.fullmatch("[CLMNPSZ][a-z]?", category):
        return ""
    parts: list[str] = []
    start: int | None = None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code)).startswith(category)
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            parts.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = None
    return "".join(parts)


def _class(pattern: str, place: int) -> tuple[str, int]:
    negated = pattern.startswith("[^", place)
    place += 1 + negated
    parts: list[str] = []
    names: set[str] = set()
    while not pattern.startswith("]", place):
        if place >= len(pattern):
            raise PatternError("a character class is not closed")
        if pattern[place] == "\\":
            names.add(pattern[place + 1 : place + 2])
            part, place = _escape(pattern, place + 1, in_class=True)
        else:
            letter = pattern[place]
            part, place = (letter if letter == "-" else re.escape(letter)), place + 1
        parts.append(part)
    if not parts or {"s", "S"} <= names:  # none, or all of them
        return (_ANY if negated == (not parts) else "(?!)"), place + 1
    inside = "".join(parts).replace("--", r"\--")
    if inside.endswith("-"):
        inside = inside[:-1] + r"\-"
    return f"[{'^' if negated else ''}{inside}]", place + 1
