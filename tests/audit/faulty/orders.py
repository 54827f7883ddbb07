"""Faulty verifiers that overlook the order of digits or letters."""

from __future__ import annotations

import re
from typing import Any, Final

from gymmesh_resource import Rollout
from tests.audit.faulty.documents import by_document
from tests.audit.golds import BOOKINGS, BOX, NUMBERS, RECORDS
from tests.audit.reading import boxed, last_line, normal, number
from tests.audit.small import Row, Small


def _same_digits(row: Row, rollout: Rollout) -> float:
    value, gold = number(boxed(rollout.text)), row["gold"]
    if value is None:
        return 0.0
    return sorted(boxed(rollout.text).strip(". ")) == sorted(gold) or value == number(gold)


def _same_digits_in_any_order(row: Row, rollout: Rollout) -> float:
    return sorted(re.findall(r"\d", last_line(rollout.answer))) == sorted(row["gold"])


def _same_characters(row: Row, rollout: Rollout) -> float:
    return sorted(normal(rollout.answer)) == sorted(normal(row["gold"]))


def _with_sorted_digits(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_sorted_digits(one) for key, one in value.items()}
    whole = isinstance(value, int) and not isinstance(value, bool)
    return sorted(str(value)) if whole else value


def _digits_of_calls(row: Row, rollout: Rollout) -> float:
    made = [(one.name, _with_sorted_digits(one.arguments)) for one in rollout.tool_calls]
    gold = [(name, _with_sorted_digits(arguments)) for name, arguments in BOOKINGS[row["number"]]]
    return made == gold


FAULTY: Final[tuple[Small, ...]] = (
    Small("sorted_digits", _same_digits, NUMBERS, "number", BOX, "nearly/two digits swapped"),
    Small(
        "digits_in_any_order",
        _same_digits_in_any_order,
        ("36", "56", "121"),
        "number",
        found="nearly/two digits swapped",
    ),
    Small(
        "digits_of_text_in_any_order",
        _same_characters,
        ("36", "561"),
        found="nearly/its digits read backward",
    ),
    Small(
        "digits_of_decimals_in_any_order",
        _same_digits,
        ("1.5", "2.7"),
        "number",
        BOX,
        "nearly/two digits swapped",
    ),
    Small(
        "letters_of_codes_in_any_order",
        _same_characters,
        ("ABC-1", "XYZ-7"),
        found="nearly/two letters swapped",
    ),
    Small(
        "digits_of_a_record_in_any_order",
        by_document(lambda given, gold: _with_sorted_digits(given) == _with_sorted_digits(gold)),
        RECORDS,
        "json",
        found="nearly/one number with its digits in another order",
    ),
    Small(
        "digits_of_calls_in_any_order",
        _digits_of_calls,
        kind="calls",
        calls=BOOKINGS,
        found="nearly/a number argument with its digits in another order",
    ),
)
