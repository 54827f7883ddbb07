"""Verifiers without a fault, none of which an audit may accuse."""

from __future__ import annotations

import ast
import json
import re
from typing import Any, Final

from gymmesh_resource import Rollout
from tests.audit.golds import BOX, CALLS, NUMBERS, PROGRAMS, QUERIES, RECORDS, TAG, WORDS
from tests.audit.reading import boxed, document, fenced, last_line, normal, number, rows, tagged
from tests.audit.small import Row, Small


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
    found = re.findall(r"^Answer:\s*\**\(?([A-Z])\)?\**\.?\s*$", rollout.text.strip(), re.M)
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


def _ascii_whole(read: Any) -> Any:
    """A whole number as its ASCII digits, perhaps as the end of a sentence; nothing else."""

    def judge(row: Row, rollout: Rollout) -> float:
        text = read(rollout.text).strip().removesuffix(".")
        whole = re.fullmatch(r"[+-]?[0-9]{1,40}", text)
        return whole is not None and int(text) == int(row["gold"])

    return judge


def _equal(read: Any) -> Any:
    """Plain equality, but for white space and the dot that ends a sentence."""

    def judge(row: Row, rollout: Rollout) -> float:
        return bool(read(rollout.text).strip().removesuffix(".") == row["gold"])

    return judge


def _plain_word(row: Row, rollout: Rollout) -> float:
    """One word, by its ASCII letters."""
    given = re.fullmatch(r"\s*([A-Za-z]+)\.?\s*", rollout.answer)
    return given is not None and given[1].casefold() == row["gold"].casefold()


def _escaped(row: Row, rollout: Rollout) -> float:
    """The expected answer as a part of a pattern, rightly."""
    pattern = rf"\s*{re.escape(normal(row['gold']))}\s*"
    return re.fullmatch(pattern, normal(rollout.answer)) is not None


def _without_punctuation(row: Row, rollout: Rollout) -> float:
    def bare(text: str) -> str:
        return re.sub(r"[^\w ]", "", normal(text))

    return bool(bare(rollout.answer)) and bare(rollout.answer) == bare(row["gold"])


def _option_in_a_box(row: Row, rollout: Rollout) -> float:
    return bool(boxed(rollout.text).strip().strip("()") == row["gold"])


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
    Small("ascii_whole", _ascii_whole(boxed), ("36", "7", "112"), "number", BOX),
    Small("ascii_whole_with_a_sign", _ascii_whole(tagged), ("-36", "7", "-1"), "number", TAG),
    Small("ascii_whole_bare", _ascii_whole(str), ("36", "7", "112"), "number"),
    Small("plain_equality_of_whole_numbers", _equal(boxed), ("36", "7", "112"), "number", BOX),
    Small("plain_equality_of_negatives", _equal(tagged), ("-36", "-7"), "number", TAG),
    Small("plain_equality_of_decimals", _equal(tagged), ("0.25", "12.75"), "number", TAG),
    Small(
        "the_same_digits",
        lambda row, rollout: boxed(rollout.text).strip() == row["gold"],
        ("36", "7", "112"),
        "number",
        BOX,
    ),
    Small(
        "number_alone",
        lambda row, rollout: rollout.answer.strip() == row["gold"],
        ("36", "1024"),
        "number",
        prompts=("What is it? Answer with the number alone.",),
    ),
    Small("a_plain_word", _plain_word, ("Lisbon", "Torsund")),
    Small("escaped_pattern", _escaped, WORDS),
    Small("escaped_pattern_of_own_answers", _escaped, ("St. Gallen", "Mt. Blanc")),
    Small("without_punctuation", _without_punctuation, ("St. Gallen", "C (left)", "Ada!")),
    Small("exact_option_in_a_box", _option_in_a_box, ("B", "D"), "choice", BOX, choices="ABCD"),
    Small("same_orders", _words(str), ("11", "22", "aba")),
)
