"""Whether a passage of a text is a whole word: not inside a longer word or number. Pure.

The text is normalised by NFKC, with dashes as hyphens. `5` is not a whole word in `15`, `0.5`,
`-5`, `1/5`, `2+5`, `5%` or `5,000`; it is one in `5.0`, `(5)` and `5 km`.
"""

from __future__ import annotations

import re

# What makes a longer number, or another one, of the digits behind it or before it.
_BEFORE = re.compile(
    r"(?:[<>≤≥±≠] ?|[~√]|!= ?|\bminus |-[$€£¥]?|[0-9][.,:⁄^·_]|[0-9] ?[/+*×] ?|(?:^|[ (])\.)$"
)
_AFTER = re.compile(r"[.,](?!0{1,2}(?![0-9]))[0-9]|[:/⁄^*×·_+-][0-9]")
# The same, after a number rather than a name with digits at its end.
_AFTER_NUMBER = re.compile(r" [/+*×] ?[0-9]| ?[%‰]| ?per ?cent\b")
_NUMBER_AT_END = re.compile(r"(?<!\w)[0-9][0-9.,]*$")
_THOUSANDS_BEFORE = re.compile(r"(?<![0-9])[0-9]{1,3} $")
_THOUSANDS_AFTER = re.compile(r" [0-9]{3}(?![0-9])")
_DENYING_PREFIX = re.compile(r"(?<![a-z])(?:non|anti|un|not|pseudo)-$")
_SEEN = 8
# The rest of `*42 items*`, whose first asterisk is emphasis and no product.
_EMPHASIS_CLOSES = re.compile(r"(?:[^*\n]*[^\s*])?\*(?![\w*]| ?[0-9])")
_EMPHASISED = 80


def stands_alone(text: str, start: int, end: int) -> bool:
    """Whether `text[start:end]`, which is not empty, is a word or number of its own."""
    before, after = text[max(0, start - _SEEN) : start], text[end : end + _SEEN]
    passage = text[start:end]
    if before.endswith(" *") and _EMPHASIS_CLOSES.match(text[end : end + _EMPHASISED]):
        before = f"{before[:-1]}“"
    if before and _joins(passage[0]) and _joins(before[-1]):
        return False
    if after and _joins(passage[-1]) and _joins(after[0]):
        return False
    if passage[0].isalpha() and _DENYING_PREFIX.search(before):
        return False
    if passage[0] == "-" and before[-1:].isalnum():
        return False
    if _starts_a_number(passage):
        if _BEFORE.search(before if start <= _SEEN else f"…{before}"):
            return False
        if re.match(r"[0-9]{3}(?![0-9])", passage) and _THOUSANDS_BEFORE.search(before):
            return False
    if not passage[-1].isdigit():
        return True
    number = _NUMBER_AT_END.search(passage)
    if number is None:
        return not _AFTER.match(after)
    if len(number[0]) <= 3 and _THOUSANDS_AFTER.match(after):
        return False
    return not (_AFTER.match(after) or _AFTER_NUMBER.match(after))


def _starts_a_number(passage: str) -> bool:
    return re.match(r"-?[$€£¥]?\.?[0-9]", passage) is not None


def _joins(char: str) -> bool:
    """Whether the character makes a word longer: letters of scripts with spaces, and digits."""
    return char.isalnum() and (ord(char) < 0x0E00 or 0x1000 <= ord(char) < 0x2E80)
