"""What `verify` may answer, and its conversion to the contract's Verification.

Invariant: a Verification that is VERIFIED has a finite reward, and no other one has any.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_responses import CodecError, dumps

__all__ = ["Component", "Outcome", "Pending", "Skipped", "Stage", "Verdict", "write_verification"]


@dataclass(frozen=True, slots=True)
class Component:
    """A part of a reward. `weight` where the reward is the weighted sum of its parts."""

    value: float
    weight: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgement.

    `reward`: the scalar, finite, typically between 0.0 and 1.0.
    `components`: its parts by name, the same names for every task.
    `evidence`: what it rests on, anything that JSON can hold; goes to the output row.
    """

    reward: float
    components: Mapping[str, float | Component] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def weighted(
        cls, components: Mapping[str, Component], evidence: Mapping[str, Any] | None = None
    ) -> Verdict:
        """A verdict whose reward is the sum of value times weight (1 where there is none)."""
        reward = math.fsum(
            part.value * (1.0 if part.weight is None else part.weight)
            for part in components.values()
        )
        return cls(reward, components, evidence or {})


@dataclass(frozen=True, slots=True)
class Pending:
    """Judged later, or together with the task's other repeats; `reason` is one line."""

    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Skipped:
    """Deliberately not judged; `reason` is one line. Not a reward of 0."""

    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


Outcome: TypeAlias = "float | Verdict | Pending | Skipped"
"""What a verifier answers; a plain number is a verdict with nothing but its reward."""


class Stage(msgspec.Struct):
    """One step of a verifier: how long it took, and one line on what came of it."""

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
    usage: Sequence[rollout_pb2.ModelCallUsage] = (),
) -> float | None:
    """Write the contract's message, which is empty before; the reward, if there is one.

    Raises ValueError for what is no verdict, in one sentence.
    """
    message.verifier = verifier
    message.verifier_version = version
    for stage in stages:
        added = message.stages.add()
        added.name = stage.name
        added.duration_us = stage.duration_us
        if stage.note:
            added.note = stage.note
    if usage:
        message.model_usage.extend(usage)
    if type(outcome) is float and math.isfinite(outcome):  # as most verifiers answer
        message.status = rollout_pb2.VERIFICATION_STATUS_VERIFIED
        message.reward = outcome
        return outcome
    if isinstance(outcome, Pending):
        message.status = rollout_pb2.VERIFICATION_STATUS_PENDING
        _write_reason(message, outcome)
        return None
    if isinstance(outcome, Skipped):
        message.status = rollout_pb2.VERIFICATION_STATUS_SKIPPED
        _write_reason(message, outcome)
        return None
    if not isinstance(outcome, Verdict):
        return _write_reward(message, outcome)
    reward = _write_reward(message, outcome.reward)
    _write_details(message, outcome)
    return reward


def _write_reward(message: rollout_pb2.Verification, given: object) -> float:
    message.status = rollout_pb2.VERIFICATION_STATUS_VERIFIED
    reward = message.reward = _number(given, "reward")
    return reward


def _write_reason(message: rollout_pb2.Verification, outcome: Pending | Skipped) -> None:
    message.reason = " ".join(outcome.reason.split())
    message.evidence_json = _evidence(outcome.evidence)


def _write_details(message: rollout_pb2.Verification, verdict: Verdict) -> None:
    message.evidence_json = _evidence(verdict.evidence)
    for name, part in verdict.components.items():
        component = part if isinstance(part, Component) else Component(part)
        added = message.components.add(name=name, value=_number(component.value, name))
        if component.weight is not None:
            added.weight = _number(component.weight, f"weight of {name}")


def _number(value: object, what: str) -> float:
    if type(value) is float:
        number = value
    elif isinstance(value, (int, float)):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    else:
        raise ValueError(f"the {what} is {type(value).__name__}, not a number")
    if not math.isfinite(number):
        raise ValueError(f"the {what} is {number}, not a finite number")
    return number


def _evidence(evidence: Mapping[str, Any]) -> bytes:
    if not evidence:
        return b""
    try:
        return dumps(_plain(dict(evidence)))
    except CodecError as error:
        raise ValueError(f"the evidence cannot be written as JSON: {error}") from None


def _plain(value: Any) -> Any:
    """Dataclasses become objects, so that an author can hand over a result as it is."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
