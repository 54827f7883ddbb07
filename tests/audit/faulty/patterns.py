"""Faulty verifiers that use the expected answer as a regular expression."""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

from gymmesh_resource import Rollout
from tests.audit.golds import BOX, NUMBERS, WORDS
from tests.audit.reading import boxed
from tests.audit.small import Row, Small


def _as_pattern(read: Any, match: Any, escaped: str = "") -> Any:
    """The expected answer is used as a regular expression; `escaped`: characters that are not."""

    def judge(row: Row, rollout: Rollout) -> float:
        pattern = "".join(f"\\{one}" if one in escaped else one for one in row["gold"])
        given = unicodedata.normalize("NFKC", read(rollout.text)).strip().rstrip(".")
        if not given:
            return 0.0
        try:
            return match(pattern, given, re.IGNORECASE) is not None
        except re.error:
            return 0.0

    return judge


FAULTY: Final[tuple[Small, ...]] = (
    Small(
        "whole_match",
        _as_pattern(str, re.fullmatch),
        WORDS,
        found="nearly/a match of it as a pattern",
    ),
    Small(
        "whole_match_in_a_box",
        _as_pattern(boxed, re.fullmatch),
        WORDS,
        "text",
        BOX,
        "nearly/a match of it as a pattern",
    ),
    Small(
        "match_with_escaped_dots",
        _as_pattern(str, re.fullmatch, "."),
        WORDS,
        found="nearly/a match of it as a pattern",
    ),
    Small(
        "match_of_own_answers",
        _as_pattern(str, re.fullmatch),
        ("St. Gallen", "Mt. Blanc"),
        found="nearly/a match of it as a pattern",
    ),
    Small(
        "whole_match_of_numbers",
        _as_pattern(boxed, re.fullmatch),
        NUMBERS,
        "number",
        BOX,
        "nearly/a match of it as a pattern",
    ),
)
