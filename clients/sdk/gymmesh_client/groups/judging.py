"""Groups that are judged together: which repeats are still to end, and the verdicts.

A rollout whose verdict awaits its group is held until every repeat of its task that this run
asked for has ended, completed or not. Then the held ones are judged together, and each has
its outcome. What cannot be judged, because judging failed or the run ended first, keeps its
PENDING verdict with the reason: never a reward of 0, and never lost. So does what belongs to a
group of which an earlier session of the run has completed repeats: a part of a group judged by
itself would be given rewards that mean something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gymmesh.agent.v1 import agent_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh.verify.v1 import verify_pb2
from gymmesh_client.agents import AgentConnector
from gymmesh_client.group_faults import not_scored
from gymmesh_client.rollout import continuation, final_call
from gymmesh_runtime.errors import MeshError


class HeldRollout(NamedTuple):
    """A completed rollout that awaits its group."""

    task: pb.Task
    rollout: pb.Rollout


_IN_PART: Final = (
    "an earlier session completed other repeats of this group. Score all repeats together with "
    "gym-cli reverify, or run all repeats again with --retry task=ID"
)


@dataclass(slots=True)
class _Group:
    outstanding: int
    in_part: bool = False
    held: list[HeldRollout] = field(default_factory=list)


@dataclass(slots=True)
class JudgedGroups:
    """The groups of a run whose repeats have not all ended, by task."""

    _groups: dict[str, _Group] = field(default_factory=dict)

    def expect(self, task_id: str, repeats: int, *, in_part: bool = False) -> None:
        """So many of a task's rollouts are to end in this session; others did in an earlier one
        where it is there `in_part`.
        """
        if repeats:
            self._groups[task_id] = _Group(repeats, in_part)

    def in_part(self, task_id: str) -> bool:
        """Whether repeats of the task that this session does not have were completed before."""
        return self._groups[task_id].in_part

    def hold(self, held: HeldRollout) -> list[HeldRollout]:
        """A rollout has ended and awaits its group; the whole group, if that was the last."""
        self._groups[held.task.task_id].held.append(held)
        return self.ended(held.task.task_id)

    def ended(self, task_id: str) -> list[HeldRollout]:
        """A rollout of the task has ended; the group to judge, if it was the last and any wait."""
        group = self._groups[task_id]
        group.outstanding -= 1
        if group.outstanding:
            return []
        del self._groups[task_id]
        return sorted(group.held, key=lambda held: held.rollout.repeat_index)

    def rest(self) -> list[HeldRollout]:
        """Every rollout that still waits, once the run has ended; none waits after that."""
        held = [one for group in self._groups.values() for one in group.held]
        self._groups.clear()
        return held


async def judge(
    group: list[HeldRollout], connect: AgentConnector, timeout_s: float
) -> list[HeldRollout]:
    """Have a group judged by the agent that ran it, in so many seconds.

    Returns it with its verdicts; with pending ones that say why, if it cannot be judged.
    """
    try:
        peer = await connect(group[0].task.agent)
        reply = await peer.JudgeGroup(group_request(group), timeout=timeout_s)
        return judged(group, reply)
    except (MeshError, ValueError) as error:
        return unjudged(group, not_scored(error))


def group_request(group: Sequence[HeldRollout]) -> agent_pb2.JudgeGroupRequest:
    """The request that has a group judged."""
    members = [_member(held.rollout) for held in group]
    task = group[0].task
    return agent_pb2.JudgeGroupRequest(
        group=verify_pb2.VerifyGroupRequest(task=task, members=members)
    )


def judged(group: Sequence[HeldRollout], reply: agent_pb2.JudgeGroupResponse) -> list[HeldRollout]:
    """The group with its verdicts. Raises ValueError unless they are one for each member."""
    if [one.rollout_id for one in reply.verdicts] != [one.rollout.rollout_id for one in group]:
        raise ValueError("the number or order of verdicts does not match the group's members")
    together = [
        _with_verdict(held, verdict.verification)
        for held, verdict in zip(group, reply.verdicts, strict=True)
    ]
    for now, before in zip(together, group, strict=True):
        # What was asked before the group was judged was asked for the rollout, too.
        earlier = before.rollout.verified.verification.model_usage
        now.rollout.verified.verification.model_usage.extend(earlier)
    return together


def unjudged(group: Sequence[HeldRollout], reason: str) -> list[HeldRollout]:
    """The group with its pending verdicts, which say why they still are."""
    changed = []
    for held in group:
        verdict = pb.Verification()
        verdict.CopyFrom(held.rollout.verified.verification)
        verdict.reason = f"{verdict.reason}; {reason}" if verdict.reason else reason
        changed.append(_with_verdict(held, verdict))
    return changed


def left_pending(held: HeldRollout) -> HeldRollout:
    """A rollout of a group that is there in part, with its pending verdict that says so."""
    return unjudged([held], _IN_PART)[0]


def _member(rollout: pb.Rollout) -> verify_pb2.GroupMember:
    verified = rollout.verified
    return verify_pb2.GroupMember(
        rollout_id=rollout.rollout_id,
        attempt=rollout.attempt,
        transcript=_transcript(rollout),
        stop_reason=rollout.completed.stop_reason,
        verification=verified.verification,
        final_state=verified.final_state if verified.HasField("final_state") else None,
    )


def _transcript(rollout: pb.Rollout) -> list[responses_pb2.Item]:
    last = final_call(rollout)
    return [] if last is None else continuation(rollout, last.call_id)


def _with_verdict(held: HeldRollout, verdict: pb.Verification) -> HeldRollout:
    rollout = pb.Rollout()
    rollout.CopyFrom(held.rollout)
    rollout.verified.verification.CopyFrom(verdict)
    return HeldRollout(held.task, rollout)
