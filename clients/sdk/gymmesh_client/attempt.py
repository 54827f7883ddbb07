"""One attempt of a rollout: the call to the agent, folded; every failure typed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final, Protocol

import grpc

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.fold import Fold, StreamViolation
from gymmesh_client.rows import FailedAttempt
from gymmesh_runtime.errors import MeshError, to_status, unforeseen
from gymmesh_runtime.timers import Limit

# How long past its deadline an agent's stream is waited for before it is left.
_DEADLINE_SLACK_S: Final = 5.0

# A call that failed with one of these before any event came may fare better the next time. A
# server that sheds load says CANCELLED.
_PASSING: Final = frozenset(
    (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
    )
)


class AgentPeer(Protocol):
    """What a collector needs of an agent service."""

    def RunRollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float
    ) -> AsyncGenerator[agent_pb2.RunRolloutResponse, None]:
        """Streams an attempt's events; MeshError when the call or the stream breaks."""
        ...

    async def JudgeGroup(
        self, request: agent_pb2.JudgeGroupRequest, *, timeout: float
    ) -> agent_pb2.JudgeGroupResponse:
        """Has the repeats of a task judged together; MeshError when that fails."""
        ...


class PushingPeer(Protocol):
    """What an agent service in this process has besides: its events, handed over as they come."""

    async def push_RunRollout(
        self,
        request: agent_pb2.RunRolloutRequest,
        *,
        timeout: float,
        send: Callable[[pb.RolloutEvent], None],
    ) -> None:
        """Runs an attempt; MeshError when the call breaks. `send` raises nothing."""
        ...


AgentConnector = Callable[[str], Awaitable[AgentPeer]]
"""Finds the agent of a name; MeshError when there is none."""

EventListener = Callable[[pb.RolloutEvent], None]


async def run_attempt(
    connect: AgentConnector,
    request: agent_pb2.RunRolloutRequest,
    *,
    repeat_index: int,
    timeout_s: float,
    on_event: EventListener | None = None,
) -> pb.Rollout | FailedAttempt:
    """Run one attempt to its end: a completed rollout, or a typed failure.

    A failure of the rollout itself is the agent's `failed` event. One of the call is put to the
    AGENT boundary, or to DEADLINE when `timeout_s` seconds were over; a broken stream is never
    data. Raises only CancelledError, and what `on_event` raises.
    """
    task = request.task
    state = Fold(
        request.rollout_id,
        request.attempt,
        run_id=request.run_id,
        task_id=task.task_id,
        repeat_index=repeat_index,
    )
    try:
        with Limit(timeout_s + _DEADLINE_SLACK_S):
            peer = await connect(task.agent)
            await _take_events(peer, request, timeout_s, state, on_event)
        rollout = state.finish()
    except StreamViolation as violation:
        return _failed(state, task, violation_error(violation), violation.rule == "truncated")
    except MeshError as error:
        if state.ended:
            # The outcome came; how the call closed after it is of no account.
            rollout = state.finish()
        else:
            return _failed(state, task, error, state.begun or error.code in _PASSING)
    except TimeoutError:
        return _failed(state, task, _overdue(timeout_s), False)
    except Exception as error:  # the last line: one rollout's surprise must not end the run
        return _failed(state, task, unforeseen(error, "the agent call"), False)
    if rollout.HasField("failed"):
        return FailedAttempt(rollout.failed.failure, rollout)
    return rollout


async def _take_events(
    peer: AgentPeer,
    request: agent_pb2.RunRolloutRequest,
    timeout_s: float,
    state: Fold,
    on_event: EventListener | None,
) -> None:
    """Raises StreamViolation, MeshError, and what `on_event` raises."""
    push = getattr(peer, "push_RunRollout", None)
    if push is None:
        async with aclosing(peer.RunRollout(request, timeout=timeout_s)) as responses:
            async for response in responses:
                state.add(response.event)
                if on_event is not None:
                    on_event(response.event)
        return
    taker = _Taker(state, on_event)
    await push(request, timeout=timeout_s, send=taker.take)
    if taker.problem is not None:
        raise taker.problem


class _Taker:
    """Takes events that are pushed; what goes wrong is kept for the one who waits."""

    __slots__ = ("_on_event", "_state", "problem")

    def __init__(self, state: Fold, on_event: EventListener | None) -> None:
        self._state = state
        self._on_event = on_event
        self.problem: Exception | None = None

    def take(self, event: pb.RolloutEvent) -> None:
        if self.problem is not None:
            return
        try:
            self._state.add(event)
            if self._on_event is not None:
                self._on_event(event)
        except Exception as problem:
            self.problem = problem


def violation_error(violation: StreamViolation) -> MeshError:
    """The error that stands for a broken stream law."""
    return MeshError(
        errors_pb2.ERROR_REASON_CONTRACT_VIOLATED,
        f"the agent's stream broke the stream law: {violation}",
        metadata={
            "rule": violation.rule,
            "expected": violation.expected,
            "got": violation.got,
        },
    )


def _overdue(timeout_s: float) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_DEADLINE_PASSED,
        f"the rollout did not end within {timeout_s:g} s",
        metadata={"method": "gymmesh.agent.v1.AgentService/RunRollout"},
    )


def _failed(state: Fold, task: pb.Task, error: MeshError, retry_safe: bool) -> FailedAttempt:
    overdue = error.code is grpc.StatusCode.DEADLINE_EXCEEDED
    failure = pb.Failure(
        boundary=pb.BOUNDARY_DEADLINE if overdue else pb.BOUNDARY_AGENT,
        status=to_status(error),
        retry_safe=retry_safe and not overdue,
        component=task.agent,
    )
    return FailedAttempt(failure, state.rollout)


def failed_recording(rollout: pb.Rollout, agent: str, error: Exception) -> FailedAttempt:
    """The failure of a rollout that is complete but cannot be written as a row."""
    mesh_error = MeshError(
        errors_pb2.ERROR_REASON_CONTRACT_VIOLATED,
        f"the agent's rollout cannot be written as a row: {error}",
        metadata={"rule": "row", "expected": "", "got": ""},
    )
    failure = pb.Failure(boundary=pb.BOUNDARY_AGENT, status=to_status(mesh_error), component=agent)
    bare = pb.Rollout(
        run_id=rollout.run_id,
        task_id=rollout.task_id,
        repeat_index=rollout.repeat_index,
        rollout_id=rollout.rollout_id,
        attempt=rollout.attempt,
    )
    return FailedAttempt(failure, bare)
