"""Whether a model called the functions it should have. Pure.

Invariant: whatever the model wrote is judged. A malformed expectation is a
`TaskInvalid`, never a reward of 0.

There are two forms of task: `expected_answers`, as in NeMo Gym's xlam_fc, and `expected_action`, as
in NeMo Gym's single-step comparison (one call, a batch of calls or a message). In both forms, each
expected call must match one call of the model, and no call may be left over. `Rules` says how calls
are compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gymmesh_resource.environments.function_calling.comparison import difference, equal_text
from gymmesh_resource.environments.function_calling.free_text import says_the_same
from gymmesh_resource.errors import TaskInvalid

_DIFFERENCES = {
    "type": "has another type",
    "keys": "has an object with other keys than expected",
    "length": "has a list of another length than expected",
    "value": "has another value",
}
# Characters of a value in an explanation.
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class NamedCall:
    """A call by name.

    arguments: an object, or None if the model wrote no object.
    accepted: in an expected call, all right values of an argument, by its name.
    optional: in an expected call, the arguments that may be omitted.
    """

    name: str
    arguments: Mapping[str, Any] | None
    accepted: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    optional: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """How calls are compared.

    extra_arguments: whether a call may have arguments that are not expected.
    in_order: whether calls must be in the expected order.
    defaults: by function and parameter, the value of an omitted argument.
    same: the rule for single values.
    ignored: keys whose values are not compared, at any depth. Both objects must have them.
    free_text: arguments in which sentences may be worded differently.
    """

    extra_arguments: Literal["allowed", "refused"] = "refused"
    in_order: bool = False
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    same: Callable[[Any, Any], bool] = equal_text
    ignored: Collection[str] = ()
    free_text: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class CallsVerdict:
    """The reward is 1.0 if all three numbers are equal and, if no call is expected, the model wrote
    a message; otherwise 0.0. `problem` is one line on what is wrong, or empty.
    """

    reward: float
    num_expected: int
    num_predicted: int
    num_correct: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ActionVerdict:
    """The judgement of an action, and one line on why."""

    reward: float
    category: str


def judge_calls(
    expected: Sequence[NamedCall], made: Sequence[NamedCall], rules: Rules, *, said: bool = True
) -> CallsVerdict:
    """The verdict on all calls of a rollout. If no call is expected, the model must make none.

    `said`: whether the model wrote a message, which is required if no call is expected.
    """
    if rules.in_order:
        pairs = zip(expected, made, strict=False)
        correct = sum(_problem(want, call, rules) is None for want, call in pairs)
    else:
        correct = _most_matches(expected, made, rules)
    perfect = correct == len(expected) == len(made) and (said or bool(expected))
    problem = "" if perfect else _first_problem(expected, made, rules)
    return CallsVerdict(float(perfect), len(expected), len(made), correct, problem)


def judge_action(
    expected: Sequence[NamedCall], made: Sequence[NamedCall], *, said: bool, rules: Rules
) -> ActionVerdict:
    """The verdict on an action: calls in any order, or a message if no call is expected.

    `said`: whether the model wrote a message. What a message says is not compared.
    """
    if not made and not said:
        return ActionVerdict(0.0, "the model made no call and wrote no message")
    if not expected:
        if made:
            return ActionVerdict(0.0, "the model made a call, but a message was expected")
        return ActionVerdict(1.0, "a message, as expected")
    if not made:
        return ActionVerdict(0.0, "the model wrote a message, but a call was expected")
    if len(made) != len(expected):  # or a model would do best to call everything
        return ActionVerdict(0.0, "the model made more or fewer calls than expected")
    if len(expected) == 1:
        problem = _problem(expected[0], made[0], rules)
        return ActionVerdict(float(problem is None), problem or "the expected call")
    if _most_matches(expected, made, rules) < len(expected):
        return ActionVerdict(0.0, "one of the calls matches no expected call")
    return ActionVerdict(1.0, "the expected calls")


def _first_problem(expected: Sequence[NamedCall], made: Sequence[NamedCall], rules: Rules) -> str:
    """One line on what is wrong with all calls."""
    if len(expected) != len(made):
        return f"expected {len(expected)} calls, got {len(made)}"
    if not expected:
        return "the model made no call and wrote no message"
    problems = (_problem(want, call, rules) for want, call in zip(expected, made, strict=True))
    return next(filter(None, problems), "the calls are in a different order")


def _problem(expected: NamedCall, made: NamedCall, rules: Rules) -> str | None:
    """What is wrong with a call, in a few words; None for the expected one."""
    if made.name != expected.name:
        return f"expected a call of {expected.name[:_SHOWN]}, got {made.name[:_SHOWN]}"
    if made.arguments is None:
        return "the arguments are not a JSON object, or a key occurs twice in the object"
    defaults = rules.defaults.get(expected.name, {})
    wanted = {**defaults, **(expected.arguments or {})}
    given = {**defaults, **made.arguments}
    for name, value in wanted.items():
        if name in expected.optional and name not in made.arguments:
            continue
        if name not in given:
            return f"the argument {name[:_SHOWN]!r} is missing"
        values = expected.accepted.get(name, (value,))
        problems = [_argument_problem(name, one, given[name], rules) for one in values]
        if None not in problems:
            return problems[0]
    if rules.extra_arguments == "refused" and given.keys() - wanted.keys():
        extra = next(name for name in given if name not in wanted)
        return f"the argument {extra[:_SHOWN]!r} is not expected"
    return None


def _argument_problem(name: str, expected: Any, made: Any, rules: Rules) -> str | None:
    if name in rules.ignored:
        return None
    found = difference(expected, made, rules.same, rules.ignored)
    if found is None:
        return None
    both = isinstance(expected, str) and isinstance(made, str)
    if both and name in rules.free_text and says_the_same(expected, made):
        return None
    if found == "value" and not isinstance(expected, dict | list):
        return f"{name[:_SHOWN]}: expected {_shown(expected)}, got {_shown(made)}"
    return f"the argument {name[:_SHOWN]!r} {_DIFFERENCES[found]}"


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:_SHOWN]


def read_expected(value: Any, where: str = "expected_answers") -> list[NamedCall]:
    """The calls of `[{"name": …, "arguments": {…} or JSON text}]`, or of that as JSON text."""
    if isinstance(value, str):
        value = _parsed(value, where)
    if not isinstance(value, list):
        raise TaskInvalid(where, "must be a list of calls")
    return [_call(entry, f"{where}[{index}]") for index, entry in enumerate(value)]


def read_action(value: Any, where: str = "expected_action") -> list[NamedCall]:
    """The calls of `{"type": "function_call", "name", "arguments"}` or of `{"type":
    "function_call_batch", "calls": […]}`; none for a message.
    """
    if not isinstance(value, dict):
        raise TaskInvalid(where, "must be an object")
    match value.get("type"):
        case "message":
            return []
        case "function_call":
            return [_call(value, where)]
        case "function_call_batch":
            calls = read_expected(value.get("calls"), f"{where}.calls")
            if not calls:
                raise TaskInvalid(f"{where}.calls", "must have at least one call")
            return calls
    raise TaskInvalid(
        f"{where}.type", 'must be "function_call", "function_call_batch" or "message"'
    )


def _call(entry: Any, where: str) -> NamedCall:
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
    return NamedCall(name, arguments, _accepted(entry, arguments, where), _optional(entry, where))


def _accepted(entry: Mapping[str, Any], arguments: Any, where: str) -> Mapping[str, Sequence[Any]]:
    accepted = entry.get("accepted", {})
    where = f"{where}.accepted"
    if not isinstance(accepted, dict):
        raise TaskInvalid(where, "must be an object that maps argument names to lists of values")
    for name, values in accepted.items():
        if not isinstance(values, list) or not values:
            raise TaskInvalid(f"{where}.{name}", "must be a list of at least one accepted value")
        if name not in arguments or arguments[name] not in values:
            raise TaskInvalid(
                f"{where}.{name}", f"must include the value that arguments.{name} has"
            )
    return accepted


def _optional(entry: Mapping[str, Any], where: str) -> Collection[str]:
    optional = entry.get("optional", [])
    if not isinstance(optional, list) or not all(isinstance(name, str) for name in optional):
        raise TaskInvalid(f"{where}.optional", "must be a list of argument names")
    return tuple(optional)


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise TaskInvalid(where, "is not JSON") from None


def _most_matches(
    expected: Sequence[NamedCall],
    made: Sequence[NamedCall],
    rules: Rules,
) -> int:
    """How many expected calls can be matched at once, each with a call of its own.

    The largest matching (augmenting paths), so that a call which fits two expectations is given
    to the one that no other call fits.
    """
    fitting = [
        [index for index, call in enumerate(made) if _problem(want, call, rules) is None]
        for want in expected
    ]
    taken_by: dict[int, int] = {}
    held: dict[int, int] = {}  # the same the other way round: calls by what they are matched with
    for start in range(len(expected)):
        came_from: dict[int, int] = {}
        free = _free_call(start, fitting, taken_by, came_from)
        while free is not None:  # along the path, everyone gives up a call for another one
            want = came_from[free]
            taken_by[free] = want
            given_up = held.get(want)
            held[want] = free
            free = given_up
    return len(taken_by)


def _free_call(
    start: int, fitting: list[list[int]], taken_by: dict[int, int], came_from: dict[int, int]
) -> int | None:
    """The nearest call that is free, `start` moving others; fills in the way that leads to it."""
    queue = [start]
    for current in queue:
        for call in fitting[current]:
            if call in came_from:
                continue
            came_from[call] = current
            if call not in taken_by:
                return call
            queue.append(taken_by[call])
    return None
