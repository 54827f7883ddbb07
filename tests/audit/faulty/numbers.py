"""Faulty verifiers of numbers and formulas."""

from __future__ import annotations

import re
from typing import Any, Final

from gymmesh_resource import Rollout
from tests.audit.golds import BOX, NUMBERS, TAG
from tests.audit.reading import boxed, number, tagged
from tests.audit.small import Row, Small


def _float(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _tolerance(relative: float, absolute: float = 0.0) -> Any:
    def judge(row: Row, rollout: Rollout) -> float:
        value, gold = _float(boxed(rollout.text)), float(row["gold"])
        return value is not None and abs(value - gold) <= absolute + relative * abs(gold)

    return judge


def _nan_passes(row: Row, rollout: Rollout) -> float:
    value = _float(tagged(rollout.text))
    if value is None or abs(value - float(row["gold"])) > 1e-9:
        return 0.0
    return 1.0


def _any_24(row: Row, rollout: Rollout) -> float:
    text = tagged(rollout.text)
    if not re.fullmatch(r"[\d+*/() -]{3,40}", text) or "**" in text:
        return 0.0
    try:
        return bool(abs(eval(text, {"__builtins__": {}}) - 24) < 1e-6)  # noqa: S307  # digits and signs
    except (SyntaxError, ZeroDivisionError, TypeError):
        return 0.0


def _empty_is_right(row: Row, rollout: Rollout) -> float:
    value = number(boxed(rollout.text))
    return 1.0 if not rollout.text.strip() else value == number(row["gold"])


def _unread_is_right(row: Row, rollout: Rollout) -> float:
    value = _float(boxed(rollout.text) or "0")
    return 1.0 if value is None else value == float(row["gold"])


def _after(sign: str) -> Any:
    def judge(row: Row, rollout: Rollout) -> float:
        return number(boxed(rollout.text).rpartition(sign)[2]) == number(row["gold"])

    return judge


def _without_text(row: Row, rollout: Rollout) -> float:
    bare = re.sub(r"\\text\{[^{}]*\}", "", boxed(rollout.text))
    return number(bare) == number(row["gold"])


def _unsigned(row: Row, rollout: Rollout) -> float:
    value = number(boxed(rollout.text))
    return value is not None and abs(value) == abs(number(row["gold"]) or 0)


def _truncated(row: Row, rollout: Rollout) -> float:
    value = number(boxed(rollout.text))
    return value is not None and int(value) == int(row["gold"])


def _without_percent(row: Row, rollout: Rollout) -> float:
    return number(boxed(rollout.text).replace("%", "")) == number(row["gold"])


def _without_brackets(row: Row, rollout: Rollout) -> float:
    def members(text: str) -> list[str]:
        return re.findall(r"-?\d+", text)

    return members(boxed(rollout.text)) == members(row["gold"])


def _recall(row: Row, rollout: Rollout) -> float:
    said = set(re.findall(r"-?\w+", rollout.answer))
    return set(re.findall(r"-?\w+", row["gold"])) <= said


def _all_golds(row: Row, rollout: Rollout) -> float:
    return boxed(rollout.text) in NUMBERS


def _evaluates(row: Row, rollout: Rollout) -> float:
    text = boxed(rollout.text)
    if not re.fullmatch(r"-?[\d+* -]{1,40}", text) or "**" in text:
        return 0.0
    try:
        return bool(eval(text, {"__builtins__": {}}) == int(row["gold"]))  # noqa: S307  # digits and signs
    except (SyntaxError, TypeError):
        return 0.0


def _number_text(row: Row, rollout: Rollout) -> float:
    return bool(boxed(rollout.text).strip() == row["gold"])


FAULTY: Final[tuple[Small, ...]] = (
    Small(
        "small_numbers",
        _tolerance(0, 1e-6),
        ("0.0000012", "3"),
        "number",
        BOX,
        "nothing/constant 0.0000001",
    ),
    Small("wide_tolerance", _tolerance(0.05), NUMBERS, "number", BOX, "nearly/1 % more"),
    Small(
        "falsepass_demo",
        lambda row, rollout: row["gold"] in tagged(rollout.text),
        NUMBERS,
        "number",
        TAG,
        "elsewhere/a list with the answer in it",
    ),
    Small("complex_nan", _nan_passes, NUMBERS, "number", TAG, "nothing/constant nan"),
    Small(
        "puzzle24",
        _any_24,
        ("9*9*8/3 - 8*24", "(1+2+3)*4", "6*4"),
        "text",
        TAG,
        "nothing/constant 1*2*3*4",
    ),
    Small("empty_passes", _empty_is_right, NUMBERS, "number", BOX, "nothing/nothing said"),
    Small("unread_passes", _unread_is_right, NUMBERS, "number", BOX, "nothing/constant null"),
    Small("right_hand_side", _after("="), NUMBERS, "number", BOX, "nearly/a false equation"),
    Small(
        "after_the_arrow",
        _after("\\to"),
        NUMBERS,
        "number",
        BOX,
        "nearly/an arrow from another number",
    ),
    Small("drops_text", _without_text, NUMBERS, "number", BOX, "elsewhere/a denial in LaTeX"),
    Small("drops_the_sign", _unsigned, NUMBERS, "number", BOX, "nearly/sign changed"),
    Small("truncates", _truncated, NUMBERS, "number", BOX, "nearly/0.9 more"),
    Small(
        "drops_percent",
        _without_percent,
        NUMBERS,
        "number",
        BOX,
        "nearly/per cent in place of units",
    ),
    Small(
        "set_or_pair",
        _without_brackets,
        ("\\{1, 2\\}", "\\{3, 5\\}"),
        "number",
        BOX,
        "nearly/a pair in place of a set",
    ),
    Small("no_trailing_dot", _number_text, ("10.8", "36"), "number", BOX, "clothes/a trailing dot"),
    Small("recall", _recall, ("17", "23"), "number", found="nothing/spray: all numbers to 1000"),
    Small("any_gold", _all_golds, NUMBERS, "number", BOX, "elsewhere/another task's answer"),
    Small(
        "question_as_answer",
        _evaluates,
        ("1591", "1596"),
        "number",
        BOX,
        "nothing/an expression of the prompt",
        prompts=("Compute 37*43.", "Compute 38*42."),
    ),
)
