"""Rules as Inspect tasks, which falsepass and `gym-cli env audit` both put on trial.

Inspect's own scorers in their usual and their unhappy uses, falsepass' demo as a scorer, and rules
with the faults that verifiers have. Loaded in an environment of its own; see `compare.py`.
"""

# Inspect is not installed where types are checked.
# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import re
from collections.abc import Callable

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import (
    CORRECT,
    INCORRECT,
    Score,
    Scorer,
    Target,
    accuracy,
    answer,
    choice,
    exact,
    includes,
    match,
    pattern,
    scorer,
)
from inspect_ai.solver import TaskState, generate, multiple_choice

_SUMS = [(17, 25), (460, 512), (38, 99), (701, 28), (64, 555), (812, 90)]
_CAPITALS = {
    "Portugal": "Lisbon", "Chile": "Santiago", "Norway": "Oslo", "Peru": "Lima",
    "Kenya": "Nairobi", "Latvia": "Riga",
}  # fmt: skip
_SMALL = ["0.0000012", "0.0000047", "0.00000031", "3", "12", "0.0000025"]
_DATES = ["2020-01-02", "1999-03-12", "2011-10-04", "1969-07-11", "2001-09-08", "1989-11-09"]
_IN_TAGS = "Reply with the answer only, inside <answer></answer> tags."
_LAST_LINE = "End with a line of the form 'ANSWER: $ANSWER' (without quotes)."

Judge = Callable[[str, str], bool]


def _sums(request: str) -> list[Sample]:
    return [Sample(f"What is {a} + {b}? {request}", target=str(a + b)) for a, b in _SUMS]


def _capitals(request: str) -> list[Sample]:
    return [
        Sample(f"What is the capital of {land}? {request}", target=city)
        for land, city in _CAPITALS.items()
    ]


def _asked(answers: list[str], request: str) -> list[Sample]:
    return [
        Sample(f"Question {number}: which value was measured? {request}", target=value)
        for number, value in enumerate(answers)
    ]


@scorer(metrics=[accuracy()])
def judged(judge: Judge, tags: bool = True) -> Scorer:
    """What stands between the tags (or on the last line) is right if the judge says so."""
    wanted = r"<answer>(.*?)</answer>" if tags else r"ANSWER:\s*(.+)"

    async def score(state: TaskState, target: Target) -> Score:
        found = re.findall(wanted, state.output.completion, re.DOTALL if tags else 0)
        right = bool(found) and judge(found[-1].strip(), target.text)
        return Score(value=CORRECT if right else INCORRECT)

    return score


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _within_a_millionth(given: str, gold: str) -> bool:
    value = _number(given)
    return value is not None and abs(value - float(gold)) <= 1e-6


def _not_too_far(given: str, gold: str) -> bool:
    value = _number(given)
    return value is not None and not abs(value - float(gold)) > 1e-9


def _without_units(given: str, gold: str) -> bool:
    def bare(text: str) -> str:
        return re.sub(r"\s*(km|kg|cm|m|s|g)$", "", text.casefold())

    return bare(given) == bare(gold)


def _same_parts(given: str, gold: str) -> bool:
    return sorted(given.split("-")) == sorted(gold.split("-"))


def _same_number(given: str, gold: str) -> bool:
    value = _number(given)
    return value is not None and value == float(gold)


@task
def demo() -> Task:
    """falsepass' demo: the answer anywhere in the tags is paid."""
    held = judged(lambda given, gold: gold in given)
    return Task(dataset=_sums(_IN_TAGS), solver=generate(), scorer=held)


@task
def included() -> Task:
    """Inspect's includes: the answer anywhere in the reply is paid."""
    return Task(dataset=_capitals("Reply with its name."), solver=generate(), scorer=includes())


@task
def matched_anywhere() -> Task:
    """Inspect's match at any place."""
    held = match(location="any")
    return Task(dataset=_sums("Reply with the number."), solver=generate(), scorer=held)


@task
def matched_at_the_end() -> Task:
    """Inspect's match of numbers at the end of the reply."""
    held = match(location="end", numeric=True)
    return Task(dataset=_sums("End with the number."), solver=generate(), scorer=held)


@task
def first_of_a_pattern() -> Task:
    """Inspect's pattern, of which the first match counts."""
    held = pattern(r"ANSWER:\s*([^\n]+)")
    return Task(dataset=_sums(_LAST_LINE), solver=generate(), scorer=held)


@task
def a_line() -> Task:
    """Inspect's answer on a line of its own."""
    return Task(dataset=_capitals(_LAST_LINE), solver=generate(), scorer=answer("line"))


@task
def options() -> Task:
    """Inspect's multiple choice."""
    names = list(_CAPITALS.values())
    samples = [
        Sample(
            f"What is the capital of {land}?",
            choices=[names[(at + step) % len(names)] for step in range(4)],
            target="ABCD"[0],
        )
        for at, land in enumerate(_CAPITALS)
    ]
    return Task(dataset=samples, solver=multiple_choice(), scorer=choice())


@task
def the_words() -> Task:
    """Inspect's exact."""
    held = exact()
    return Task(dataset=_capitals("Reply with its name alone."), solver=generate(), scorer=held)


@task
def small_numbers() -> Task:
    """An absolute tolerance, for which small numbers are all equal."""
    samples = _asked(_SMALL, _LAST_LINE)
    return Task(dataset=samples, solver=generate(), scorer=judged(_within_a_millionth, tags=False))


@task
def nan_passes() -> Task:
    """A comparison that rejects what is far, so that nan is right."""
    return Task(dataset=_sums(_IN_TAGS), solver=generate(), scorer=judged(_not_too_far))


@task
def units_stripped() -> Task:
    """Letters that look like units are left out."""
    return Task(dataset=_capitals(_IN_TAGS), solver=generate(), scorer=judged(_without_units))


@task
def parts_of_dates() -> Task:
    """The parts of a date in any order."""
    samples = _asked(_DATES, _IN_TAGS)
    return Task(dataset=samples, solver=generate(), scorer=judged(_same_parts))


@task
def numbers_in_tags() -> Task:
    """Sound: the number between the tags is compared."""
    return Task(dataset=_sums(_IN_TAGS), solver=generate(), scorer=judged(_same_number))


@task
def words_in_tags() -> Task:
    """Sound: the words between the tags are compared, without their case and a last dot."""

    def same(given: str, gold: str) -> bool:
        return " ".join(given.split()).removesuffix(".").casefold() == gold.casefold()

    return Task(dataset=_capitals(_IN_TAGS), solver=generate(), scorer=judged(same))
