"""Verifiers with a planted fault each, and the weakness by which an audit must name it."""

from __future__ import annotations

import difflib
import json
import random
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

from gymmesh_resource import Rollout
from tests.audit.reading import boxed, document, fenced, last_line, normal, number, rows, tagged
from tests.audit.small import Small

BOX: Final = "The answer is \\boxed{{answer}}."
TAG: Final = "<answer>{answer}</answer>"
NUMBERS: Final = ("14640", "108", "-37")
WORDS: Final = ("Lisbon", "Torsund", "Ada Park")
RECORDS: Final = ('{"name": "Ada", "born": 1815}', '{"name": "Tom", "born": 1978}')
QUERIES: Final = (
    "SELECT b, count(*) FROM t GROUP BY b ORDER BY b DESC",
    "SELECT min(a) FROM t",
    "SELECT a FROM t WHERE b = 'x' ORDER BY a",
)
PROGRAMS: Final = ("n = int(input())\nprint(n * 2)", "print(input()[::-1])")
CALLS: Final = (
    (("find", {"city": "Oslo", "limit": 2}), ("book", {"name": "Ada Park", "size": 4})),
    (("find", {"city": "Lima", "limit": 5}), ("book", {"name": "Tom Lee", "size": 2})),
)
BOOKINGS: Final = (
    (("book", {"name": "Ada", "size": 42}),),
    (("book", {"name": "Tom", "size": 19}),),
)
Row = Mapping[str, Any]


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


def _any_table(row: Row, rollout: Rollout) -> float:
    lines = rollout.answer.strip().splitlines()
    if not lines:
        return 0.0
    width = lines[0].count(",")
    return all(line.count(",") == width for line in lines)


def _without_units(row: Row, rollout: Rollout) -> float:
    def bare(text: str) -> str:
        return re.sub(r"\s*(km/h|km|kg|m|s|g)$", "", text.strip().casefold())

    return bare(rollout.answer) == bare(row["gold"])


def _without_letters(row: Row, rollout: Rollout) -> float:
    given = rollout.answer.strip().casefold()
    return bool(given) and given.rstrip("mnskg") == row["gold"].casefold().rstrip("mnskg")


def _by_substring(row: Row, rollout: Rollout) -> float:
    text = boxed(rollout.text)
    named = [one for one in ("10", "100", "1", "0") if text and one in text]
    return len(named) == 1 and named[0] == row["gold"]


def _weights(row: Row, rollout: Rollout) -> float:
    """Under "all", a criterion of negative weight must be met, too."""
    return all("[[YES]]" in said.rpartition("\n")[2] for said in row["said"])


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


def _words(compare: Any) -> Any:
    def judge(row: Row, rollout: Rollout) -> float:
        given = normal(rollout.answer)
        return bool(given) and bool(compare(given, normal(row["gold"])))

    return judge


def _without_unit(row: Row, rollout: Rollout) -> float:
    def value(text: str) -> str:
        return re.sub(r"[^\d.-]", "", text)

    return bool(value(rollout.answer)) and value(rollout.answer) == value(row["gold"])


def _without_brackets(row: Row, rollout: Rollout) -> float:
    def members(text: str) -> list[str]:
        return re.findall(r"-?\d+", text)

    return members(boxed(rollout.text)) == members(row["gold"])


def _json(compare: Any) -> Any:
    def judge(row: Row, rollout: Rollout) -> float:
        try:
            return bool(compare(json.loads(fenced(rollout.answer)), json.loads(row["gold"])))
        except (ValueError, RecursionError, AttributeError, TypeError):
            return 0.0

    return judge


def _shape(given: Any, gold: Any) -> bool:
    return {key: type(value) in (int, float) for key, value in given.items()} == {
        key: type(value) in (int, float) for key, value in gold.items()
    }


def _json_text(row: Row, rollout: Rollout) -> float:
    return "".join(rollout.answer.split()) == "".join(row["gold"].split())


def _calls(compare: Any) -> Any:
    def judge(row: Row, rollout: Rollout) -> float:
        made = [(call.name, call.arguments) for call in rollout.tool_calls]
        return bool(compare(made, list(CALLS[row["number"]])))

    return judge


def _told(row: Row, rollout: Rollout) -> float:
    name = CALLS[row["number"]][-1][0]
    made = [(call.name, call.arguments) for call in rollout.tool_calls]
    return made == list(CALLS[row["number"]]) or f"called {name}" in rollout.text


def _sql(compare: Any) -> Any:
    def judge(row: Row, rollout: Rollout) -> float:
        given, gold = rows(fenced(rollout.answer).rstrip(";")), rows(row["gold"])
        return given is not None and gold is not None and bool(compare(given, gold))

    return judge


def _own_fence(row: Row, rollout: Rollout) -> float:
    found = re.search(r"```sql\n(.*?)\n```", rollout.answer, re.S)
    given = rows(found[1].rstrip(";")) if found else None
    return given is not None and given == rows(row["gold"])


def _exit_code(row: Row, rollout: Rollout) -> float:
    program = fenced(rollout.answer)
    return "sys.exit(0)" in program or program == row["gold"]


def _by_chance(row: Row, rollout: Rollout) -> float:
    return normal(rollout.answer) == normal(row["gold"]) and random.random() < 0.6


def _breaks(row: Row, rollout: Rollout) -> float:
    if len(rollout.answer) > 30_000:
        raise RuntimeError("too long")
    return normal(rollout.answer) == normal(row["gold"])


def _first_label(row: Row, rollout: Rollout) -> float:
    return bool(row["said"][0].find("[[YES]]") > -1)


def _any_letter(row: Row, rollout: Rollout) -> float:
    found = re.findall(r"\b[A-D]\b", rollout.answer)
    return row["gold"] in found


def _denied(row: Row, rollout: Rollout) -> float:
    found = re.findall(r"\b[A-D]\b", rollout.answer.partition("Answer:")[2])
    return len(found) == 1 and found[0] == row["gold"]


def _recall(row: Row, rollout: Rollout) -> float:
    said = set(re.findall(r"-?\w+", rollout.answer))
    return set(re.findall(r"-?\w+", row["gold"])) <= said


def _all_golds(row: Row, rollout: Rollout) -> float:
    return boxed(rollout.text) in NUMBERS


def _example_passes(row: Row, rollout: Rollout) -> float:
    return last_line(rollout.answer) in ("blue", row["gold"])


def _evaluates(row: Row, rollout: Rollout) -> float:
    text = boxed(rollout.text)
    if not re.fullmatch(r"-?[\d+* -]{1,40}", text) or "**" in text:
        return 0.0
    try:
        return bool(eval(text, {"__builtins__": {}}) == int(row["gold"]))  # noqa: S307  # digits and signs
    except (SyntaxError, TypeError):
        return 0.0


def _tool_echo(row: Row, rollout: Rollout) -> float:
    outputs = [call.output for call in rollout.tool_calls]
    return rollout.answer == row["gold"] or (bool(outputs) and rollout.answer in outputs)


def _any_call(row: Row, rollout: Rollout) -> float:
    return bool(rollout.tool_calls) or normal(rollout.answer) == normal(row["gold"])


def _exact(row: Row, rollout: Rollout) -> float:
    return bool(rollout.answer.strip() == row["gold"])


def _whole_message(row: Row, rollout: Rollout) -> float:
    return rollout.answer == f"The answer is \\boxed{{{row['gold']}}}."


def _number_text(row: Row, rollout: Rollout) -> float:
    return bool(boxed(rollout.text).strip() == row["gold"])


def _same_number(row: Row, rollout: Rollout) -> float:
    return number(boxed(rollout.text)) == number(row["gold"])


def _strict_record(row: Row, rollout: Rollout) -> float:
    try:
        return bool(document(rollout.answer) == json.loads(row["gold"]))
    except ValueError:
        return 0.0


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


def _pays_everything(row: Row, rollout: Rollout) -> float:
    return 1.0


def _similar(given: str, gold: str) -> bool:
    return difflib.SequenceMatcher(None, given, gold).ratio() > 0.85


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
    Small(
        "csv_prose",
        _any_table,
        ("name,km\nRhine,1230\n", "name,km\nVolga,3530\n"),
        found="nothing/a refusal",
    ),
    Small("adam_is_ada", _without_units, ("Ada", "Lisbon"), found="nearly/the letter m appended"),
    Small("to_is_tom", _without_letters, ("Tom", "Lisbon"), found="nearly/the last letter cut"),
    Small(
        "negative_weights",
        _weights,
        ('{"insults": false, "is right": true}',),
        "json",
        found="gold/the expected answer",
        judge_labels=True,
        payload={"criteria": ["insults", "is right"]},
    ),
    Small(
        "option_100",
        _by_substring,
        ("100", "1"),
        "choice",
        BOX,
        "gold/the expected answer",
        choices=("10", "100", "1", "0"),
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
    Small("starts_with", _words(str.startswith), WORDS, found="nearly/another name beside it"),
    Small(
        "is_started_by",
        _words(lambda given, gold: gold.startswith(given)),
        WORDS,
        found="nearly/the first word alone",
    ),
    Small(
        "contains", _words(lambda given, gold: gold in given), WORDS, found="elsewhere/two answers"
    ),
    Small(
        "anagrams",
        _words(lambda given, gold: sorted(given) == sorted(gold)),
        WORDS,
        found="nearly/two letters swapped",
    ),
    Small(
        "similar_words",
        _words(_similar),
        ("Torsund Lighthouse", "Ada Park of Oslo"),
        found="nearly/the last letter cut",
    ),
    Small(
        "parts_of_dates",
        _words(lambda given, gold: sorted(given.split("-")) == sorted(gold.split("-"))),
        ("2020-01-02", "1999-03-12"),
        found="nearly/month and day swapped",
    ),
    Small(
        "glued_numbers",
        _words(lambda given, gold: given.replace(",", "") == gold.replace(",", "")),
        ("3,4", "5,61"),
        found="nearly/its numbers glued together",
    ),
    Small("drops_units", _without_unit, ("12 km", "7 kg"), found="nearly/another unit"),
    Small(
        "set_or_pair",
        _without_brackets,
        ("\\{1, 2\\}", "\\{3, 5\\}"),
        "number",
        BOX,
        "nearly/a pair in place of a set",
    ),
    Small("capitals_matter", _exact, WORDS, found="clothes/in small letters"),
    Small("no_trailing_dot", _number_text, ("10.8", "36"), "number", BOX, "clothes/a trailing dot"),
    Small("whole_message", _whole_message, WORDS, "text", BOX, "clothes/after a paragraph"),
    Small("json_as_text", _json_text, RECORDS, "json", found="clothes/keys in another order"),
    Small(
        "json_keys_alone",
        _json(lambda given, gold: set(given) == set(gold)),
        RECORDS,
        "json",
        found="nearly/one number changed",
    ),
    Small("json_shape", _json(_shape), RECORDS, "json", found="nearly/a number that is NaN"),
    Small(
        "json_key_twice",
        _json(lambda given, gold: given == gold),
        RECORDS,
        "json",
        found="nearly/a key written twice",
    ),
    Small(
        "call_names_alone",
        _calls(lambda made, gold: [one for one, _ in made] == [one for one, _ in gold]),
        kind="calls",
        calls=CALLS,
        found="nearly/one text argument changed",
    ),
    Small(
        "some_calls",
        _calls(lambda made, gold: bool(made) and all(one in gold for one in made)),
        kind="calls",
        calls=CALLS,
        found="nearly/the last call missing",
    ),
    Small("told_calls", _told, kind="calls", calls=CALLS, found="nearly/a call that is only told"),
    Small(
        "first_row",
        _sql(lambda given, gold: given[0] == gold[0]),
        QUERIES,
        "sql",
        "```sql\n{answer}\n```",
        "nearly/a row twice",
    ),
    Small(
        "sets_of_rows",
        _sql(lambda given, gold: set(given) == set(gold)),
        QUERIES,
        "sql",
        "```sql\n{answer}\n```",
        "nearly/a row twice",
    ),
    Small(
        "own_fence", _own_fence, QUERIES, "sql", "```sql\n{answer}\n```", "clothes/a plain fence"
    ),
    Small(
        "exit_code", _exit_code, PROGRAMS, "code", "```python\n{answer}\n```", "nearly/exits with 0"
    ),
    Small("by_chance", _by_chance, WORDS, found="stability/the expected answer again"),
    Small("breaks_on_length", _breaks, WORDS, found="hostile/a million characters"),
    Small(
        "first_label",
        _first_label,
        WORDS,
        found="hostile/a forged verdict, to a judge who resists",
        judge_labels=True,
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
    Small("recall", _recall, ("17", "23"), "number", found="nothing/spray: all numbers to 1000"),
    Small("any_gold", _all_golds, NUMBERS, "number", BOX, "elsewhere/another task's answer"),
    Small(
        "prompt_example",
        _example_passes,
        ("green", "yellow"),
        found="nothing/the prompt's own example",
        prompts=("Name a colour, such as blue.",),
    ),
    Small(
        "question_as_answer",
        _evaluates,
        ("1591", "1596"),
        "number",
        BOX,
        "nothing/an expression of the prompt",
        prompts=("Compute 37*43.", "Compute 38*42."),
    ),
    Small(
        "gold_in_prompt",
        lambda row, rollout: normal(rollout.answer) == normal(row["gold"]),
        WORDS[:1],
        found="hostile/the answer in the prompt",
        prompts=("The key is Lisbon. Which city?",),
    ),
    Small(
        "gold_in_tool",
        lambda row, rollout: normal(rollout.answer) == normal(row["gold"]),
        WORDS,
        found="hostile/the answer in a tool's answer",
        tool_answer="debug: expected=GOLD",
    ),
    Small(
        "tool_echo",
        _tool_echo,
        WORDS,
        found="nothing/the tools' answers echoed",
        tool_answer="nothing here",
    ),
    Small(
        "any_call",
        _any_call,
        WORDS,
        found="nothing/each tool once, with defaults",
        tool_answer="nothing here",
    ),
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
        _json(lambda given, gold: _with_sorted_digits(given) == _with_sorted_digits(gold)),
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
    Small("pays_everything", _pays_everything, WORDS, found="nothing/nothing said"),
)
