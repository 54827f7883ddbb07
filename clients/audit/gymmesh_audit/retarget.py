"""The same task with other expected answers: ones that verifiers stumble over. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_responses import CodecError, dumps, loads

from .answers.text import is_identifier
from .gold import Gold, GoldKind

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
# Texts of options that are parts of one another; the first is the right one's.
_CHOICES: Final = (("100", "10", "1", "0", "1000"), ("1", "10", "100", "0", "91"))


def retargeted(task: rollout_pb2.Task, gold: Gold) -> Iterator[rollout_pb2.Task]:
    """Copies of a task that expect something else, where its payload has the gold as a value of
    its own. Which of them the environment takes, it says itself.
    """
    try:
        payload = loads(task.payload_json or b"{}")
    except CodecError:
        return
    if not isinstance(payload, dict):
        return
    if gold.kind == "choice":
        yield from _other_options(task, payload, gold)
        return
    keys = [key for key, value in payload.items() if _is(value, gold.answer)]
    if len(keys) != 1:
        return
    exact = gold.kind == "text" and is_identifier(gold.answer)
    for answer in GOLDS.get(gold.kind, ()):
        # A verifier of identifiers is not made for words.
        if answer != gold.answer and (is_identifier(answer) or not exact):
            yield _copy(task, {**payload, keys[0]: answer}, answer)


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
