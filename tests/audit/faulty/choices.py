"""Faulty verifiers of options."""

from __future__ import annotations

import re
from typing import Final

from gymmesh_resource import Rollout
from tests.audit.golds import BOX
from tests.audit.reading import boxed
from tests.audit.small import Row, Small


def _by_substring(row: Row, rollout: Rollout) -> float:
    text = boxed(rollout.text)
    named = [one for one in ("10", "100", "1", "0") if text and one in text]
    return len(named) == 1 and named[0] == row["gold"]


def _any_letter(row: Row, rollout: Rollout) -> float:
    found = re.findall(r"\b[A-D]\b", rollout.answer)
    return row["gold"] in found


def _denied(row: Row, rollout: Rollout) -> float:
    found = re.findall(r"\b[A-D]\b", rollout.answer.partition("Answer:")[2])
    return len(found) == 1 and found[0] == row["gold"]


def _last_option(row: Row, rollout: Rollout) -> float:
    found = re.findall(r"^Answer:\s*\**\(?([A-D])\)?\**\.?\s*$", rollout.text.strip(), re.M)
    return bool(found) and found[-1] == row["gold"]


FAULTY: Final[tuple[Small, ...]] = (
    Small(
        "option_100",
        _by_substring,
        ("100", "1"),
        "choice",
        BOX,
        "gold/the expected answer",
        choices=("10", "100", "1", "0"),
    ),
    Small(
        "any_letter",
        _any_letter,
        ("B", "C"),
        "choice",
        "Answer: {answer}",
        "elsewhere/all options",
        choices="ABCD",
    ),
    Small(
        "denied_letter",
        _denied,
        ("B", "C"),
        "choice",
        "Answer: {answer}",
        "elsewhere/a denial",
        choices="ABCD",
    ),
    Small(
        "last_option",
        _last_option,
        ("B", "C"),
        "choice",
        "Answer: {answer}",
        "elsewhere/the answer, then taken back for no option",
        choices="ABCD",
    ),
)
