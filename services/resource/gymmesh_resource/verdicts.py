"""What `verify` may return, and its conversion to the contract's Verification.

Invariant: a VERIFIED Verification has a finite reward in the environment's range. Any other has no
reward.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.errors import DefinitionError, WrongResult
from gymmesh_responses import CodecError, dumps

# Sums of weighted parts may miss a bound by a rounding error.
_ROUNDING = 1e-9
# Less than the codec's limit, for what the evidence stands in.
_EVIDENCE_DEPTH = 200
# Characters of an explanation.
_EXPLANATION = 500
# Python writes no integer of more digits than 4,300.
_EVIDENCE_BITS = 14_000


@dataclass(frozen=True, slots=True)
class Component:
    """A part of a reward. Set `weight` where the reward is the weighted sum of its parts."""

    value: float
    weight: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgement.

    `reward`: the scalar, in the environment's `reward_range`.
    `components`: its parts by name, with the same names for every task; finite numbers of any size.
    A component with the name of an actor is that actor's reward, for trainers that learn from each
    actor's conversation. An actor without a component has `reward`.
    `evidence`: the grounds of the verdict, as any JSON value; it is written to the output row.
    `explanation`: the verdict in one line for people, such as `expected 42, got 41`; truncated to
    500 characters.
    """

    reward: float
    components: Mapping[str, float | Component] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    explanation: str = ""

    @classmethod
    def weighted(
        cls,
        components: Mapping[str, Component],
        evidence: Mapping[str, Any] | None = None,
        explanation: str = "",
    ) -> Verdict:
        """A verdict whose reward is the sum of value times weight. The default weight is 1."""
        reward = math.fsum(
            part.value * (1.0 if part.weight is None else part.weight)
            for part in components.values()
        )
        return cls(reward, components, evidence or {}, explanation)


@dataclass(frozen=True, slots=True)
class Pending:
    """The rollout is judged later, or with the task's other repeats. `reason`: one line."""

    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Skipped:
    """The rollout is deliberately not judged. This is not a reward of 0. `reason`: one line."""

    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


Outcome: TypeAlias = "float | Verdict | Pending | Skipped"
"""What a verifier returns; a plain number is a verdict with only a reward."""


class Stage(msgspec.Struct):
    """One step of a verifier: its duration, and one line about its result."""

    name: str
    duration_us: int = 0
    note: str = ""


def write_verification(
    message: rollout_pb2.Verification,
    outcome: object,
    *,
    verifier: str,
    version: str,
    stages: Sequence[Stage],
    compat: str = "",
    reward_range: tuple[float, float] = (0.0, 1.0),
    earlier: float = 0.0,
    usage: Sequence[rollout_pb2.ModelCallUsage] = (),
) -> float | None:
    """Fills the contract's empty message, and returns the reward, if there is one.

    compat: the reference verifier whose verdict it reproduces; empty: none.
    earlier: the amount that the agent adds to the reward; the sum must be in the range, too.
    Raises WrongResult for a value that is not a verdict.
    """
    message.verifier = verifier
    message.verifier_version = version
    message.compat = compat
    for stage in stages:
        message.stages.add(name=stage.name, duration_us=stage.duration_us, note=stage.note)
    message.model_usage.extend(usage)
    if isinstance(outcome, Pending | Skipped):
        message.status = (
            rollout_pb2.VERIFICATION_STATUS_PENDING
            if isinstance(outcome, Pending)
            else rollout_pb2.VERIFICATION_STATUS_SKIPPED
        )
        message.reason = " ".join(outcome.reason.split())
        message.evidence_json = _evidence(outcome.evidence)
        return None
    message.status = rollout_pb2.VERIFICATION_STATUS_VERIFIED
    given = outcome.reward if isinstance(outcome, Verdict) else outcome
    reward = message.reward = in_range(given, "the reward", reward_range)
    if earlier:
        in_range(reward + earlier, "the sum of the reward and the turns' rewards", reward_range)
    if isinstance(outcome, Verdict):
        _write_details(message, outcome)
    return reward


def check_range(where: str, given: object) -> None:
    """Raises DefinitionError for an invalid `reward_range`."""
    if isinstance(given, tuple | list) and len(given) == 2:
        least, most = given
        if _is_number(least) and _is_number(most) and least < most:
            return
    raise DefinitionError(
        f"{where}.reward_range is {given!r}. Write two numbers, the smaller number first, such as "
        "(0.0, 1.0) or (-math.inf, math.inf)."
    )


def in_range(value: object, what: str, reward_range: tuple[float, float]) -> float:
    """A reward as a float. Raises WrongResult for a non-number, or one outside the range."""
    number = _number(value, what)
    least, most = reward_range
    if not least - _ROUNDING <= number <= most + _ROUNDING:
        wanted = f"({min(least, math.floor(number)):.1f}, {max(most, math.ceil(number)):.1f})"
        raise WrongResult(
            f"{what} is {number:g}, outside the environment's range from {least:g} to {most:g}. "
            "Scale the reward, or declare another range in the class, such as reward_range = "
            f"{wanted}"
        )
    return number


def reward_number(value: object, what: str) -> float:
    """A part of a reward as a float. Raises WrongResult if it is not a finite number."""
    return _number(value, what)


def turn_reward(value: object, reward_range: tuple[float, float]) -> float:
    """The reward of a turn, which may take back earlier rewards. Raises WrongResult."""
    least, most = reward_range
    return in_range(value, "the turn's reward", (min(least, least - most), max(most, most - least)))


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and value == value


def _write_details(message: rollout_pb2.Verification, verdict: Verdict) -> None:
    message.evidence_json = _evidence(verdict.evidence)
    message.explanation = _one_line(verdict.explanation)
    for name, part in verdict.components.items():
        component = part if isinstance(part, Component) else Component(part)
        added = message.components.add(
            name=name, value=_number(component.value, f"the component {name!r}")
        )
        if component.weight is not None:
            added.weight = _number(component.weight, f"the weight of {name!r}")


def _number(value: object, what: str) -> float:
    if type(value) is float:
        number = value
    elif isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    else:
        raise WrongResult(
            f"{what} is {_shown(value)}, not a number. Return a float, such as float(right), or "
            "a Verdict"
        )
    if not math.isfinite(number):
        raise WrongResult(f"{what} is {number}, not a finite number")
    return number


def _one_line(text: object) -> str:
    """A text of an author's as one line that the contract can carry, cut where it is long."""
    line = " ".join(str(text).split()).encode("utf-8", "replace").decode()
    return line if len(line) <= _EXPLANATION else f"{line[: _EXPLANATION - 1]}…"


def _evidence(evidence: Mapping[str, Any]) -> bytes:
    if not evidence:
        return b""
    given: object = evidence  # authors write anything
    if not isinstance(given, Mapping):
        raise WrongResult(
            f"the evidence is {_shown(given)}. Return a dict that has a key for "
            "each part of the evidence"
        )
    try:
        return dumps(_plain(dict(evidence)))
    except CodecError as error:
        raise WrongResult(f"the evidence cannot be written as JSON: {error}") from None


def _shown(value: object) -> str:
    kind = type(value).__name__
    return repr(value) if value is None or isinstance(value, bool) else f"of the type {kind}"


def _plain(value: Any, depth: int = 0) -> Any:
    """As JSON can say it, whatever a policy wrote: dataclasses become objects, and what is nested
    too deep, or is no finite number, becomes text.
    """
    if depth >= _EVIDENCE_DEPTH:
        return "(nested deeper than evidence may be)"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and value.bit_length() > _EVIDENCE_BITS:
        return f"(an integer of {value.bit_length()} bits)"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
        return _plain(named, depth)
    if isinstance(value, dict):
        return {key: _plain(part, depth + 1) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part, depth + 1) for part in value]
    return value
