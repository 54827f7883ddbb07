"""A text that the expected answer would match, if it were read as a regular expression. Pure.

The pattern is never run: an answer in a task file may be a pattern that takes forever.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gymmesh_audit.answers.variant import Variant
from gymmesh_audit.gold import same

#: The attack's name.
AS_PATTERN = "a match of it as a pattern"
_REPEATED = re.compile(r"(?:\((?P<group>[^()]*)\)|(?P<one>\w))[+*]")
_GROUP = re.compile(r"\(([^()]*)\)")
_OPTIONAL = re.compile(r"\w\?")
_ONE_OF = re.compile(r"\[(\w)[^\[\]]*\]")
_LONG = 400


def matches(answer: str) -> Iterator[Variant]:
    """Another text that the answer, read as a pattern, matches, if the answer has characters with a
    meaning in patterns. A text that differs only by punctuation is skipped, because many verifiers
    ignore punctuation.
    """
    if "\\" in answer or len(answer) > _LONG:
        return
    twice = _REPEATED.sub(lambda found: (found["group"] or found["one"] or "") * 2, answer)
    made = _ONE_OF.sub(r"\1", _OPTIONAL.sub("", _GROUP.sub(r"\1", twice)))
    made = made.replace(".", "x" if re.search(r"[^\W\d_]", answer) else "7")
    if made.strip() and not same(made, answer):
        yield Variant(AS_PATTERN, made)
