"""What a verdict must be, and how turn rewards enter it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_responses import CodecError, loads
from gymmesh_runtime.errors import MeshError

# HasField of the class: a message looks through the names of its fields to find its own.
_verdict_has = rollout_pb2.Verification.HasField

_STATUSES = frozenset(
    (
        rollout_pb2.VERIFICATION_STATUS_VERIFIED,
        rollout_pb2.VERIFICATION_STATUS_PENDING,
        rollout_pb2.VERIFICATION_STATUS_SKIPPED,
    )
)


def check_verification(
    verdict: rollout_pb2.Verification,
) -> rollout_pb2.VerificationStatus.ValueType:
    """Refuse a verdict that breaks the contract, rather than train on it; gives its status.

    Raises:
        MeshError: CONTRACT_VIOLATED; `rule` in the metadata names the field.
    """
    status = verdict.status
    if status not in _STATUSES:
        raise _violated("status", f"the verdict has status {status}")
    verified = status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
    if verified != _verdict_has(verdict, "reward"):
        if verified:
            raise _violated("reward", "the verdict is VERIFIED but has no reward")
        raise _violated("reward", "the verdict has a reward but is not VERIFIED")
    reward = verdict.reward
    if not math.isfinite(reward):
        raise _violated("reward", f"the reward is {reward}, not a finite number")
    for part in verdict.components[:]:  # the end of an iteration is an exception, a slice's not
        if not math.isfinite(part.value):
            raise _violated("components", f"component {part.name!r} is {part.value}")
    evidence = verdict.evidence_json
    if evidence:
        _check_evidence(evidence)
    return status


def add_turn_rewards(
    verdict: rollout_pb2.Verification,
    rule: resource_pb2.RewardRule.ValueType,
    turn_rewards: Sequence[float],
) -> rollout_pb2.Verification:
    """The rollout's verdict: under REWARD_RULE_SUM the verifier's reward plus those of the
    turns, in a copy; under every other rule the verdict as it is.

    The sum is told apart again in `components`: `turns` is added to the verifier's own, and
    `verifier` before it when it gave none.

    Raises:
        MeshError: CONTRACT_VIOLATED, when the sum is not finite.
    """
    if rule != resource_pb2.REWARD_RULE_SUM or not turn_rewards:
        return verdict
    if verdict.status != rollout_pb2.VERIFICATION_STATUS_VERIFIED:
        return verdict
    of_turns = math.fsum(turn_rewards)
    total = verdict.reward + of_turns
    if not math.isfinite(total):
        raise _violated("reward", "the sum of turn rewards and the verifier's is not finite")
    summed = rollout_pb2.Verification()
    summed.CopyFrom(verdict)
    summed.reward = total
    if not summed.components:
        summed.components.add(name="verifier", value=verdict.reward)
    summed.components.add(name="turns", value=of_turns)
    return summed


def mark_group(verdict: rollout_pb2.Verification) -> rollout_pb2.Verification:
    """The verdict of an environment that judges groups: one that is PENDING awaits its group, and
    says so in a copy.
    """
    if verdict.status != rollout_pb2.VERIFICATION_STATUS_PENDING:
        return verdict
    marked = rollout_pb2.Verification()
    marked.CopyFrom(verdict)
    marked.awaits_group = True
    return marked


def skipped(reason: str) -> rollout_pb2.Verification:
    """The verdict of a rollout that is deliberately not judged."""
    return rollout_pb2.Verification(status=rollout_pb2.VERIFICATION_STATUS_SKIPPED, reason=reason)


def _check_evidence(evidence: bytes) -> None:
    try:
        fits = isinstance(loads(evidence), dict)
    except CodecError:
        fits = False
    if not fits:
        raise _violated("evidence_json", "the verdict's evidence is not a JSON object")


def _violated(rule: str, message: str) -> MeshError:
    return MeshError(errors_pb2.ERROR_REASON_CONTRACT_VIOLATED, message, metadata={"rule": rule})
