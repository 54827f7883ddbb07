"""The same task with other expected answers, which verifiers often judge wrongly. Pure.

A new answer has the shape of an expected answer of the environment, because a verifier of whole
numbers isn't made for intervals. The exception are answers that mean something as a regular
expression: on a task with such an answer, only a match of it is tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_audit.answers import is_identifier
from gymmesh_audit.gold import Gold, GoldKind
from gymmesh_responses import CodecError, dumps, loads

#: By kind. Small and large numbers, names that end like units, dates, sets, words.
GOLDS: Final[Mapping[GoldKind, Sequence[str]]] = {
    "number": (
        "0.0000012", "1.6\\times10^{-19}", "0", "-3", "1945", "1000000", "0.5", "37\\%", "3/2",
        "\\frac{1}{3000000}", "\\{1,2\\}", "10101_2", "(2,\\infty)", "12\\text{ cm}", "x+1",
        "2020-01-02", "listen", "1-\\frac{1}{\\mathrm{e}}", "1591",
    ),
    "text": (
        "Ada", "Tom", "kg", "12 km/h", "3,4", "New York", "2020-01-02", "2:30 PM", "O'Brien",
        "Müller", "1945", "-5", "ABC-1",
    ),
}  # fmt: skip
#: By kind: answers with a meaning as patterns, of which some do not match themselves.
PATTERNS: Final[Mapping[GoldKind, Sequence[str]]] = {
    "number": ("12.5",),
    "text": ("St. Gallen", "A+", "f(x)+1"),
}
_COMMAND: Final = re.compile(r"\\[A-Za-z]+")
_WHOLES: Final = {
    "a large whole number": re.compile(r"^-?\d{5,}$"),
    "a whole number": re.compile(r"^-?\d+$"),
    "words": re.compile(r"^[^\d\\+=^_]+$"),
}
# Texts of options that are parts of one another; the first is the right one's.
_CHOICES: Final = (("100", "10", "1", "0", "1000"), ("1", "10", "100", "0", "91"))


def retargeted(task: rollout_pb2.Task, gold: Gold) -> Iterator[rollout_pb2.Task]:
    """Copies of a task with other expected answers of the gold's shape. The task's payload must
    have the gold as the value of one key. The environment itself decides which of the copies it
    accepts.
    """
    if gold.kind == "choice":
        yield from _other_options(task, _payload(task), gold)
        return
    exact = gold.kind == "text" and is_identifier(gold.answer)
    shown = shape(gold.answer)
    # A verifier of identifiers is not made for words.
    yield from _with_answers(
        task,
        gold,
        [
            answer
            for answer in GOLDS.get(gold.kind, ())
            if shape(answer) <= shown and (is_identifier(answer) or not exact)
        ],
    )


def with_patterns(task: rollout_pb2.Task, gold: Gold) -> Iterator[rollout_pb2.Task]:
    """Copies of a task that expect an answer with a meaning as a regular expression."""
    yield from _with_answers(task, gold, PATTERNS.get(gold.kind, ()))


def shape(answer: str) -> frozenset[str]:
    """The kinds of characters in an answer: letters, digits, letters beyond ASCII, white space,
    each other character, each command of LaTeX. Also whether it is a whole number, a large whole
    number, or words.
    """
    commands = _COMMAND.findall(answer)
    rest = _COMMAND.sub("", answer)
    wholes = [name for name, pattern in _WHOLES.items() if pattern.search(answer)]
    return frozenset([*commands, *wholes, *map(_class, rest)])


def _class(character: str) -> str:
    if character.isspace():
        return " "
    if character.isalpha():
        return "a" if character.isascii() else "ä"
    return "0" if character.isdecimal() else character


def _with_answers(
    task: rollout_pb2.Task, gold: Gold, answers: Iterable[str]
) -> Iterator[rollout_pb2.Task]:
    payload = _payload(task)
    keys = [key for key, value in payload.items() if _is(value, gold.answer)]
    if len(keys) != 1:
        return
    for answer in answers:
        if answer != gold.answer:
            yield _copy(task, {**payload, keys[0]: answer}, answer)


def _payload(task: rollout_pb2.Task) -> Mapping[str, Any]:
    """What the task's row has beside its prompt; nothing where it cannot be read."""
    try:
        payload = loads(task.payload_json or b"{}")
    except CodecError:
        return {}
    return payload if isinstance(payload, dict) else {}


def _other_options(
    task: rollout_pb2.Task, payload: Mapping[str, Any], gold: Gold
) -> Iterator[rollout_pb2.Task]:
    """The task with numbers for its options' texts."""
    letters = all(len(one) == 1 for one in gold.choices)
    if letters or gold.answer not in gold.choices:
        return
    others = [one for one in gold.choices if one != gold.answer]
    for right, *wrong in _CHOICES:
        if len(others) <= len(wrong):
            new = {gold.answer: right, **dict(zip(others, wrong, strict=False))}
            yield _copy(task, _replaced(payload, new), f"the option {right}")


def _replaced(value: Any, new: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return new.get(value, value)
    if isinstance(value, list):
        return [_replaced(one, new) for one in value]
    if isinstance(value, dict):
        return {key: _replaced(one, new) for key, one in value.items()}
    return value


def _copy(task: rollout_pb2.Task, payload: Any, name: str) -> rollout_pb2.Task:
    copy = rollout_pb2.Task()
    copy.CopyFrom(task)
    copy.task_id = f"{task.task_id or 'task'} expecting {name}"
    copy.payload_json = dumps(payload)
    return copy


def _is(value: object, answer: str) -> bool:
    if isinstance(value, str):
        return value == answer
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and str(value) == answer
