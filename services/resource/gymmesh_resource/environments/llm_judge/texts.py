"""Text work that may take long on hostile input, run in a worker process that can be killed.

`grade` has NeMo Gym's rules for equivalence without a judge, after case and white space are
evened out: "exact"; "seq_match", the ratio of Python's `difflib.SequenceMatcher`; and
"weighted_seq_match", 85 % of that and 15 % of the ratio of the first ten characters.
"""

from __future__ import annotations

import re
from collections import deque
from difflib import SequenceMatcher
from typing import Literal

Rule = Literal["exact", "seq_match", "weighted_seq_match"]
_PREFIX = 10


def extract_last(pattern: str, text: str) -> str | None:
    """The first non-blank group of the last match, otherwise the match; None without a match."""
    last = deque(re.finditer(pattern, text, re.MULTILINE | re.DOTALL), maxlen=1)
    if not last:
        return None
    for group in last[0].groups():
        if group is not None and group.strip():
            return str(group.strip())
    return last[0][0].strip()


def normalised(text: str) -> str:
    """In lower case, with single spaces."""
    return re.sub(r"\s+", " ", text.strip().lower())


def grade(rule: Rule, answer: str, expected: str) -> float:
    """The similarity of two texts, 0.0 to 1.0."""
    given, wanted = normalised(answer), normalised(expected)
    if rule == "exact":
        return float(given == wanted)
    similarity = SequenceMatcher(None, given, wanted).ratio()
    if rule == "seq_match":
        return similarity
    prefix = wanted[:_PREFIX]
    start = SequenceMatcher(None, given[: len(prefix)], prefix).ratio()
    return max(0.0, min(1.0, 0.85 * similarity + 0.15 * start))
