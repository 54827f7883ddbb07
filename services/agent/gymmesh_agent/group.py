"""The repeats of a task, judged together by the task's environment."""

from __future__ import annotations

from collections.abc import Sequence

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_agent.peers import RESOURCE_SERVICE, VERIFY_SERVICE, VerifyPeer
from gymmesh_agent.verdict import check_verification
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.names import check_name
from gymmesh_runtime.peers import PeerDirectory

_PICK_S = 5.0


async def judge_group(
    directory: PeerDirectory,
    request: agent_pb2.JudgeGroupRequest,
    context: CallContext,
    verify_s: float,
) -> agent_pb2.JudgeGroupResponse:
    """Pass a group on to its environment, and the verdicts back.

    Raises:
        MeshError: what the environment raises; CONTRACT_VIOLATED when its verdicts do not fit
            the members.
    """
    group = request.group
    if not group.task.environment:
        raise MeshError(
            errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING,
            "group.task.environment is not set; name the environment that judges the task",
            metadata={"field": "group.task.environment", "method": context.method},
        )
    check_name("group.task.environment", group.task.environment)
    instance = await directory.pick(
        RESOURCE_SERVICE, group.task.environment, timeout=context.timeout(_PICK_S)
    )
    peer: VerifyPeer = directory.peer(instance, VERIFY_SERVICE)
    try:
        reply = await peer.VerifyGroup(group, timeout=context.timeout(verify_s))
    except MeshError as error:
        other = directory.instead(instance, error)
        if other is None:
            raise
        peer = directory.peer(other, VERIFY_SERVICE)
        reply = await peer.VerifyGroup(group, timeout=context.timeout(verify_s))
    _check(group.members, reply.verdicts)
    return agent_pb2.JudgeGroupResponse(verdicts=reply.verdicts)


def _check(
    members: Sequence[verify_pb2.GroupMember], verdicts: Sequence[verify_pb2.GroupVerdict]
) -> None:
    asked = [member.rollout_id for member in members]
    judged = [verdict.rollout_id for verdict in verdicts]
    if asked != judged:
        raise MeshError(
            errors_pb2.ERROR_REASON_CONTRACT_VIOLATED,
            f"the environment judged {len(judged)} members of {len(asked)}, or in another order",
            metadata={"rule": "verdicts"},
        )
    for verdict in verdicts:
        check_verification(verdict.verification)
