"""Whether a model called the functions it should have. Pure.

Invariant: whatever the model wrote is judged. A malformed expectation is a
`TaskInvalid`, never a reward of 0.

Two forms of task are judged. Several expected calls (`expected_answers`, as in NeMo Gym's
xlam_fc): every expected call is matched by one call of the model and no call is left over. One
expected action (`expected_action`, as in NeMo Gym's single-step comparison): the model's first
call, or a message where one is expected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gymmesh_resource.errors import TaskInvalid

from .comparison import Likeness, alike, same

__all__ = [
    "ActionVerdict",
    "Call",
    "CallsVerdict",
    "Rules",
    "judge_action",
    "judge_calls",
    "read_action",
    "read_expected",
]

_DIFFERENCES = {
    "type": "an argument has another type",
    "keys": "the arguments, or an object in them, have other keys",
    "length": "a list has another length",
    "value": "an argument has another value",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A call by name. `arguments`: an object, or None where the model wrote none."""

    name: str
    arguments: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Rules:
    """How several calls are compared.

    extra_arguments: whether a call may have arguments that are not expected.
    in_order: whether calls must come in the expected order.
    defaults: values by parameter, by function; an argument that is left out has its default.
    """

    extra_arguments: Literal["allowed", "refused"] = "allowed"
    in_order: bool = False
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallsVerdict:
    """The reward is 1.0 when all three numbers are equal, else 0.0."""

    reward: float
    num_expected: int
    num_predicted: int
    num_correct: int


@dataclass(frozen=True, slots=True)
class ActionVerdict:
    """The judgement of a first action, and one line on why."""

    reward: float
    category: str


def judge_calls(expected: Sequence[Call], made: Sequence[Call], rules: Rules) -> CallsVerdict:
    """The verdict on all calls of a rollout; none are expected: none may be made."""
    if rules.in_order:
        pairs = zip(expected, made, strict=False)
        correct = sum(_fits(want, call, rules) for want, call in pairs)
    else:
        correct = _most_matches(expected, made, rules)
    perfect = correct == len(expected) == len(made)
    return CallsVerdict(float(perfect), len(expected), len(made), correct)


def judge_action(
    expected: Call | None, made: Sequence[Call], *, said: bool, likeness: Likeness
) -> ActionVerdict:
    """The verdict on the first action: a call, or, where `expected` is None, a message.

    `said`: whether the model wrote a message. What a message says is not compared.
    """
    if not made and not said:
        return ActionVerdict(0.0, "neither a call nor a message")
    if expected is None:
        if made:
            return ActionVerdict(0.0, "a call where a message was expected")
        return ActionVerdict(1.0, "a message, as expected")
    if not made:
        return ActionVerdict(0.0, "a message where a call was expected")
    call = made[0]
    if call.name != expected.name:
        return ActionVerdict(0.0, "another function")
    if call.arguments is None:
        return ActionVerdict(0.0, "the arguments are no JSON object")
    difference = alike(dict(expected.arguments or {}), dict(call.arguments), likeness)
    if difference is not None:
        return ActionVerdict(0.0, _DIFFERENCES[difference])
    return ActionVerdict(1.0, "the expected call")


def read_expected(value: Any, where: str = "expected_answers") -> list[Call]:
    """The calls of `[{"name": …, "arguments": {…} or JSON text}]`, or of that as JSON text."""
    if isinstance(value, str):
        value = _parsed(value, where)
    if not isinstance(value, list):
        raise TaskInvalid(where, "must be a list of calls")
    return [_call(entry, f"{where}[{index}]") for index, entry in enumerate(value)]


def read_action(value: Any, where: str = "expected_action") -> Call | None:
    """The call of `{"type": "function_call", "name", "arguments"}`; None for a message."""
    if not isinstance(value, dict):
        raise TaskInvalid(where, "must be an object")
    kind = value.get("type")
    if kind == "message":
        return None
    if kind != "function_call":
        raise TaskInvalid(f"{where}.type", 'must be "function_call" or "message"')
    return _call(value, where)


def _call(entry: Any, where: str) -> Call:
    if not isinstance(entry, dict):
        raise TaskInvalid(where, 'must be an object with "name" and "arguments"')
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise TaskInvalid(f"{where}.name", "must be the name of a function")
    arguments = entry.get("arguments", {})
    if isinstance(arguments, str):
        arguments = _parsed(arguments or "{}", f"{where}.arguments")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise TaskInvalid(f"{where}.arguments", "must be an object")
    return Call(name, arguments)


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise TaskInvalid(where, "is not JSON") from None


def _fits(expected: Call, made: Call, rules: Rules) -> bool:
    if expected.name != made.name or made.arguments is None:
        return False
    defaults = rules.defaults.get(expected.name, {})
    wanted = {**defaults, **(expected.arguments or {})}
    given = {**defaults, **made.arguments}
    if rules.extra_arguments == "refused" and given.keys() - wanted.keys():
        return False
    return all(key in given and same(value, given[key]) for key, value in wanted.items())


def _most_matches(expected: Sequence[Call], made: Sequence[Call], rules: Rules) -> int:
    """How many expected calls can be matched at once, each with a call of its own.

    The largest matching (augmenting paths), so that a call which fits two expectations is given
    to the one that no other call fits.
    """
    fitting = [
        [index for index, call in enumerate(made) if _fits(want, call, rules)] for want in expected
    ]
    taken_by: dict[int, int] = {}
    for want in range(len(expected)):
        _assign(want, fitting, taken_by)
    return len(taken_by)


def _assign(want: int, fitting: list[list[int]], taken_by: dict[int, int]) -> None:
    """Match `want`, moving others along a path of free alternatives where that is needed."""
    came_from: dict[int, int] = {}
    queue = [want]
    for current in queue:
        for call in fitting[current]:
            if call in came_from:
                continue
            came_from[call] = current
            if call not in taken_by:
                _flip(call, want, came_from, taken_by)
                return
            queue.append(taken_by[call])


def _flip(call: int, start: int, came_from: dict[int, int], taken_by: dict[int, int]) -> None:
    held = {want: index for index, want in taken_by.items()}
    while True:
        want = came_from[call]
        taken_by[call] = want
        if want == start:
            return
        call = held[want]
