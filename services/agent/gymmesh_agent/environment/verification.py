"""Verdicts: what the contract requires of them, how turn rewards are added, and verdicts of a
group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_responses import CodecError, added_reward, loads, rollout_reward
from gymmesh_runtime.errors import MeshError

_STATUSES = frozenset(
    (
        rollout_pb2.VERIFICATION_STATUS_VERIFIED,
        rollout_pb2.VERIFICATION_STATUS_PENDING,
        rollout_pb2.VERIFICATION_STATUS_SKIPPED,
    )
)


def check_verification(verdict: rollout_pb2.Verification) -> None:
    """Reject a verdict that breaks the contract, so that nobody trains on it.

    Raises:
        MeshError: CONTRACT_VIOLATED; `rule` in the metadata names the field.
    """
    status = verdict.status
    if status not in _STATUSES:
        raise violated("status", f"the verdict has the unknown status {status}")
    verified = status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
    if verified != verdict.HasField("reward"):
        if verified:
            raise violated("reward", "the verdict is VERIFIED but has no reward")
        raise violated("reward", "the verdict has a reward but is not VERIFIED")
    reward = verdict.reward
    if not math.isfinite(reward):
        raise violated("reward", f"the verdict's reward is {reward}, not a finite number")
    for part in verdict.components:
        for number in (part.value, part.weight):
            if not math.isfinite(number):
                raise violated(
                    "components", f"the component {part.name!r} is {number}, not a finite number"
                )
    evidence = verdict.evidence_json
    if evidence:
        _check_evidence(evidence)


def rollout_verdict(
    verdict: rollout_pb2.Verification,
    environment: resource_pb2.GetEnvironmentResponse,
    turn_rewards: Sequence[float],
) -> rollout_pb2.Verification:
    """The rollout's verdict, from the verifier's verdict and the environment's description of
    itself.

    Raises:
        MeshError: CONTRACT_VIOLATED; see `check_verification`.
    """
    check_verification(verdict)
    if environment.judges_groups:
        verdict = mark_group(verdict)
    return add_turn_rewards(verdict, environment.reward_rule, turn_rewards)


def add_turn_rewards(
    verdict: rollout_pb2.Verification,
    rule: resource_pb2.RewardRule.ValueType,
    turn_rewards: Sequence[float],
) -> rollout_pb2.Verification:
    """The verdict, including the turns' rewards.

    Under REWARD_RULE_SUM, a copy of the verdict has the turns' rewards added to the verifier's
    reward. Its `components` then have the parts: `turns` after the verifier's own components, or
    after `verifier` if it has none. Under every other rule, the verdict is unchanged.

    Raises:
        MeshError: CONTRACT_VIOLATED, if the sum is not finite.
    """
    if rule != resource_pb2.REWARD_RULE_SUM or not turn_rewards:
        return verdict
    if verdict.status != rollout_pb2.VERIFICATION_STATUS_VERIFIED:
        return verdict
    try:
        of_turns = added_reward(rule, turn_rewards)
        total = rollout_reward(verdict.reward, rule, turn_rewards)
    except ValueError as error:
        raise violated("reward", str(error)) from error
    summed = rollout_pb2.Verification()
    summed.CopyFrom(verdict)
    summed.reward = total
    if not summed.components:
        summed.components.add(name="verifier", value=verdict.reward)
    summed.components.add(name="turns", value=of_turns)
    return summed


def mark_group(verdict: rollout_pb2.Verification) -> rollout_pb2.Verification:
    """The verdict of an environment that judges groups: if it is PENDING, a copy with
    awaits_group.
    """
    if verdict.status != rollout_pb2.VERIFICATION_STATUS_PENDING:
        return verdict
    marked = rollout_pb2.Verification()
    marked.CopyFrom(verdict)
    marked.awaits_group = True
    return marked


def skipped(reason: str) -> rollout_pb2.Verification:
    """The verdict of a rollout that is not judged on purpose."""
    return rollout_pb2.Verification(status=rollout_pb2.VERIFICATION_STATUS_SKIPPED, reason=reason)


def check_group(
    members: Sequence[verify_pb2.GroupMember], verdicts: Sequence[verify_pb2.GroupVerdict]
) -> None:
    """Reject verdicts that do not fit the members of a group.

    Raises:
        MeshError: CONTRACT_VIOLATED.
    """
    asked = [member.rollout_id for member in members]
    judged = [verdict.rollout_id for verdict in verdicts]
    if asked != judged:
        problem = (
            f"the environment must return one verdict for each rollout ({len(asked)}), in the "
            "order of the request"
        )
        raise violated(
            "verdicts",
            f"{problem}; the number ({len(judged)}) or the order of the returned verdicts differs",
        )
    for verdict in verdicts:
        check_verification(verdict.verification)


def _check_evidence(evidence: bytes) -> None:
    try:
        fits = isinstance(loads(evidence), dict)
    except CodecError:
        fits = False
    if not fits:
        raise violated("evidence_json", "the verdict's evidence is not a JSON object")


def violated(rule: str, message: str) -> MeshError:
    """CONTRACT_VIOLATED; `rule` names the field."""
    return MeshError(errors_pb2.ERROR_REASON_CONTRACT_VIOLATED, message, metadata={"rule": rule})
