"""The repeats of a task that are judged together, each with the state that its session had."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource.rollout import Member, Rollout
from gymmesh_resource.serving.final_state import kept_state, state_gone
from gymmesh_resource.serving.served_environment import ServedEnvironment, seed_of
from gymmesh_resource.session import JudgedSession
from gymmesh_resource.task import Task


@asynccontextmanager
async def group_members(
    served: ServedEnvironment, request: verify_pb2.VerifyGroupRequest, task: Task
) -> AsyncIterator[Sequence[Member]]:
    """The members, in the request's order. Raises as `ServedEnvironment.judged_session`."""
    if not any(member.final_state.state_json for member in request.members):
        yield _members(served, request, task, None)
        return
    # A new session's state says which classes a kept one may have.
    session = await served.judged_session(task, seed_of(request.task), "")
    try:
        yield _members(served, request, task, session.state)
    finally:
        await served.end_session(session)


def _members(
    served: ServedEnvironment, request: verify_pb2.VerifyGroupRequest, task: Task, fresh: object
) -> list[Member]:
    return [
        _member(served, task, member, fresh, f"members[{place}].final_state")
        for place, member in enumerate(request.members)
    ]


def _member(
    served: ServedEnvironment, task: Task, member: verify_pb2.GroupMember, fresh: object, field: str
) -> Member:
    rollout = Rollout(
        task,
        member.transcript,
        member.stop_reason,
        rollout_id=member.rollout_id,
        attempt=member.attempt,
        models=served.models,
    )
    session = JudgedSession[Any]("", task, 0, None, member.rollout_id)
    environment, kept = served.environment, member.final_state
    if kept.state_json:
        session.lend = partial(kept_state, environment, fresh, kept, field)
    else:
        session.lend = partial(state_gone, environment, kept.omitted)
    verification = member.verification if member.HasField("verification") else None
    return Member(rollout, verification, session)
