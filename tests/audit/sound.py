"""Verifiers without a fault, none of which an audit may accuse."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from gymmesh_resource import Rollout

from .faulty import BOX, CALLS, NUMBERS, PROGRAMS, QUERIES, RECORDS, TAG, WORDS
from .reading import boxed, document, fenced, last_line, normal, number, rows, tagged
from .small import Small

Row = Mapping[str, Any]


def _number(read: Any) -> Any:
    def judge(row: Row, rollout: Rollout) -> float:
        value = number(read(rollout.text))
        return value is not None and value == number(row["gold"])

    return judge


def _close(row: Row, rollout: Rollout) -> float:
    value, gold = number(boxed(rollout.text)), number(row["gold"])
    return value is not None and gold is not None and abs(value - gold) <= abs(gold) / 10**9


def _words(read: Any) -> Any:
    def judge(row: Row, rollout: Rollout) -> float:
        return normal(read(rollout.text)) == normal(row["gold"])

    return judge


def _identifier(row: Row, rollout: Rollout) -> float:
    return bool(rollout.answer.strip() == row["gold"])


def _letter(row: Row, rollout: Rollout) -> float:
    found = re.findall(r"^Answer:\s*\**\(?([A-D])\)?\**\.?\s*$", rollout.text.strip(), re.M)
    return bool(found) and found[-1] == row["gold"]


def _boxed_letter(row: Row, rollout: Rollout) -> float:
    bare = re.sub(r"^\\text(bf)?\{(.*)\}$", r"\2", boxed(rollout.text).strip())
    return bool(bare.strip("() ") == row["gold"])


def _record(row: Row, rollout: Rollout) -> float:
    try:
        return bool(document(rollout.answer) == json.loads(row["gold"]))
    except ValueError:
        return 0.0


def _share(row: Row, rollout: Rollout) -> float:
    """The share of keys that are right: partial."""
    try:
        given, gold = document(rollout.answer), json.loads(row["gold"])
    except ValueError:
        return 0.0
    if not isinstance(given, dict) or set(given) - set(gold):
        return 0.0
    return float(sum(given.get(key) == value for key, value in gold.items()) / len(gold))


def _rows(row: Row, rollout: Rollout) -> float:
    given = rows(fenced(rollout.answer).rstrip(";"))
    return given is not None and given == rows(row["gold"])


def _calls(row: Row, rollout: Rollout) -> float:
    made = [(call.name, call.arguments) for call in rollout.tool_calls]
    return made == list(CALLS[row["number"]])


def _program(row: Row, rollout: Rollout) -> float:
    """The same program but for comments and layout."""
    try:
        given = ast.dump(ast.parse(fenced(rollout.answer)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0.0
    return given == ast.dump(ast.parse(row["gold"]))


def _label(row: Row, rollout: Rollout) -> float:
    return bool(row["said"][0].rstrip().endswith("[[YES]]"))


def _weighted(row: Row, rollout: Rollout) -> float:
    met = [said.rstrip().endswith("[[YES]]") for said in row["said"]]
    return met == [False, True]


def _any_order(row: Row, rollout: Rollout) -> float:
    def members(text: str) -> list[str]:
        inside = re.fullmatch(r"\\\{(.*)\\\}", text.strip())
        return sorted(one.strip() for one in inside[1].split(",")) if inside else []

    found = members(boxed(rollout.text))
    return bool(found) and found == members(row["gold"])


def _several(row: Row, rollout: Rollout) -> float:
    return normal(rollout.answer) in (normal(row["gold"]), f"the {normal(row['gold'])}")


_CODES: Final = ("ABC-1", "x_17", "/usr/bin")
SOUND: Final[tuple[Small, ...]] = (
    Small("number_in_a_box", _number(boxed), NUMBERS, "number", BOX),
    Small("number_in_tags", _number(tagged), NUMBERS, "number", TAG),
    Small("number_on_the_last_line", _number(last_line), NUMBERS, "number"),
    Small("decimal_in_a_box", _number(boxed), ("0.375", "12.5", "0.0000012"), "number", BOX),
    Small("large_numbers", _number(boxed), ("1000000", "299792458"), "number", BOX),
    Small("tight_tolerance", _close, ("3.25", "100.5"), "number", BOX),
    Small("word", _words(str), WORDS),
    Small("word_in_a_box", _words(boxed), WORDS, "text", BOX),
    Small("word_in_tags", _words(tagged), WORDS, "text", TAG),
    Small("names_with_marks", _words(boxed), ("Müller", "O'Brien", "New York"), "text", BOX),
    Small("identifiers", _identifier, _CODES),
    Small("dates", _words(str), ("2020-01-02", "1999-12-31")),
    Small("quantities", _words(str), ("12 km/h", "7 kg")),
    Small("an_article_is_fine", _several, ("Amazon", "Nile")),
    Small("letter_after_answer", _letter, ("B", "C"), "choice", "Answer: {answer}", choices="ABCD"),
    Small("letter_in_a_box", _boxed_letter, ("B", "D"), "choice", BOX, choices="ABCD"),
    Small("yes_or_no", _words(tagged), ("yes", "no"), "choice", TAG, choices=("yes", "no")),
    Small("record", _record, RECORDS, "json"),
    Small("record_by_share", _share, RECORDS, "json", win_reward=1.0),
    Small("query", _rows, QUERIES, "sql", "```sql\n{answer}\n```"),
    Small("calls", _calls, kind="calls", calls=CALLS),
    Small("program", _program, PROGRAMS, "code", "```python\n{answer}\n```"),
    Small("judge", _label, WORDS, judge_labels=True),
    Small(
        "rubric",
        _weighted,
        ('{"insults": false, "is right": true}',),
        "json",
        judge_labels=True,
        payload={"criteria": ["insults", "is right"]},
    ),
    Small("sets", _any_order, ("\\{1, 2\\}", "\\{3, 5\\}"), "number", BOX),
    Small("with_a_tool", _words(str), WORDS, tool_answer="nothing here"),
)
