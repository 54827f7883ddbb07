"""What an agent checks, adds up and copies: verdicts, rewards, ages of weights, reasons. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from google.rpc import status_pb2

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from tests.conformance.minimal.status import reason_of

_VERIFIED = pb.VERIFICATION_STATUS_VERIFIED
_STATUSES = (_VERIFIED, pb.VERIFICATION_STATUS_PENDING, pb.VERIFICATION_STATUS_SKIPPED)


def problem(verdict: pb.Verification) -> str:
    """Which rule of Verification a verdict breaks; empty: none."""
    if verdict.status not in _STATUSES:
        return "status"
    if verdict.HasField("reward") != (verdict.status == _VERIFIED):
        return "reward"
    numbers = [verdict.reward, *(part.value for part in verdict.components)]
    return "" if all(map(math.isfinite, numbers)) else "finite"


def with_turns(
    verdict: pb.Verification, rule: resource_pb2.RewardRule.ValueType, rewards: Sequence[float]
) -> pb.Verification:
    """The verdict with the rewards of turns, where the environment has the agent add them."""
    if rule != resource_pb2.REWARD_RULE_SUM or verdict.status != _VERIFIED:
        return verdict
    added = pb.Verification()
    added.CopyFrom(verdict)
    added.reward = math.fsum([verdict.reward, *rewards])
    return added


def of_group(verdict: pb.Verification, *, judges_groups: bool) -> pb.Verification:
    """The verdict; one that is PENDING where groups are judged says that it awaits its group."""
    if not judges_groups or verdict.status != pb.VERIFICATION_STATUS_PENDING:
        return verdict
    marked = pb.Verification()
    marked.CopyFrom(verdict)
    marked.awaits_group = True
    return marked


def age_of(versions: Iterable[int]) -> int:
    """How many versions the oldest weights are behind the newest."""
    known = list(versions)
    return max(known) - min(known) if known else 0


def rule_of(status: status_pb2.Status) -> errors_pb2.ReasonRule:
    """What the contract says of an error's reason: an option of its enum value."""
    value = errors_pb2.ErrorReason.DESCRIPTOR.values_by_name.get(
        f"ERROR_REASON_{reason_of(status)}"
    )
    found = errors_pb2.ReasonRule()
    if value is not None:
        found.CopyFrom(value.GetOptions().Extensions[errors_pb2.rule])
    return found
