"""One attempt of a rollout: the call to the agent, folded; every failure typed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import grpc
import msgspec

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.agents import AgentConnector
from gymmesh_client.rollout import Fold, RolloutParts, StreamViolation
from gymmesh_client.rows import FailedAttempt
from gymmesh_runtime.errors import MeshError, to_status, unforeseen
from gymmesh_runtime.timers import Limit

DEADLINE_SLACK_S: Final = 5.0
"""How long past its deadline an agent's stream is waited for before it is left."""

LARGE_BYTES: Final = 256 * 1024
"""Rollouts with at least so many bytes of events are converted in a thread. That costs about 0.1
ms, and the loop waits for 5 ms at most, Python's switch interval.
"""

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


# What an agent's stream may have where the request does not say: far more than ours allow by
# default, so that an agent that is configured to allow more is not cut off.
_MOST_EVENTS: Final = 5_000_000
_MOST_BYTES: Final = 1_000_000_000

EventListener = Callable[[pb.RolloutEvent], None]


class AgentCall(msgspec.Struct, eq=False):
    """The call that has an agent run an attempt, and the fold of its events.

    `on_event` is called with each event, once it is folded.
    """

    # A Struct, as each rollout makes one.

    _request: agent_pb2.RunRolloutRequest
    _agent: str
    _fold: Fold
    _on_event: EventListener | None = None
    # Whether the listener raised; then there is no outcome, even if all events have come.
    _refused: bool = False
    _events: int = 0
    _bytes: int = 0

    @property
    def begun(self) -> bool:
        """Whether anything of it has come."""
        return self._fold.begun

    async def run(self, connect: AgentConnector, timeout_s: float) -> RolloutParts | FailedAttempt:
        """Run it to its end; see run_attempt. Returns the parts of a rollout that completed, or
        that the agent reported as failed.

        The agent has `timeout_s` seconds. The caller cancels this call DEADLINE_SLACK_S later, at
        the latest.
        """
        fold = self._fold
        try:
            peer = await connect(self._agent)
            await peer.run_rollout(self._request, timeout=timeout_s, sink=self._add)
            parts = fold.parts()
        except StreamViolation as violation:
            return await self._failed(_violation_error(violation), violation.rule == "truncated")
        except MeshError as error:
            if self._refused or not fold.ended:
                return await self._failed(error, fold.begun or _is_passing(error))
            # The outcome came; how the call closed after it is of no account.
            parts = fold.parts()
        except TimeoutError:
            return await self.overdue(timeout_s)
        except Exception as error:  # the last line: one rollout's surprise must not end the run
            return await self.broken(error)
        parts.size = self._bytes
        return parts

    async def overdue(self, timeout_s: float) -> FailedAttempt:
        """Its failure, when it did not end within that time."""
        error = MeshError(
            errors_pb2.ERROR_REASON_DEADLINE_PASSED,
            f"the rollout did not finish within {timeout_s:g} s; raise --timeout of gym-cli "
            "collect, or timeout_s of CollectOptions",
            metadata={"method": "gymmesh.agent.v1.AgentService/RunRollout"},
        )
        return await self._failed(error, False)

    async def broken(self, error: BaseException) -> FailedAttempt:
        """Its failure, when it raised what no agent should."""
        return await self._failed(unforeseen(error, "the agent call"), False)

    async def cancelled(self, reason: str) -> FailedAttempt:
        """Its failure, when it is cancelled for good."""
        return cancelled_attempt(self._agent, await self._partial(), reason)

    async def _partial(self) -> pb.Rollout:
        """The rollout as far as it has come, copied without holding up the loop."""
        self._fold.size = self._bytes
        return await message_of(self._fold)

    def _add(self, event: pb.RolloutEvent) -> None:
        """Fold an event, then show it to the listener. Raises ATTEMPT_TOO_LARGE, too."""
        self._events += 1
        self._bytes += event.ByteSize()
        if self._events > _MOST_EVENTS or self._bytes > _MOST_BYTES:
            self._check_bounds()
        self._fold.add(event)
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception:
                self._refused = True
                raise

    def _check_bounds(self) -> None:
        options = self._request.options
        bounds = (
            ("max_events", self._events, options.max_events or _MOST_EVENTS),
            ("max_event_bytes", self._bytes, options.max_event_bytes or _MOST_BYTES),
        )
        for limit, held, most in bounds:
            if held > most:
                raise MeshError(
                    errors_pb2.ERROR_REASON_ATTEMPT_TOO_LARGE,
                    f"the agent's stream exceeds {limit} ({most})",
                    metadata={"limit": limit, "most": str(most)},
                )

    async def _failed(self, error: MeshError, retry_safe: bool) -> FailedAttempt:
        overdue = error.code is grpc.StatusCode.DEADLINE_EXCEEDED
        boundary = pb.BOUNDARY_DEADLINE if overdue else pb.BOUNDARY_AGENT
        if error.reason == errors_pb2.ERROR_REASON_ATTEMPT_TOO_LARGE:
            boundary, retry_safe = pb.BOUNDARY_BUDGET, False
        partial = await self._partial()
        retry_safe = retry_safe and not overdue
        return _failed_at(boundary, error, self._agent, partial, retry_safe, self._bytes)


async def run_attempt(
    connect: AgentConnector,
    request: agent_pb2.RunRolloutRequest,
    *,
    repeat_index: int,
    timeout_s: float,
    on_event: EventListener | None = None,
) -> pb.Rollout | FailedAttempt:
    """Run one attempt to its end: a completed rollout, or a typed failure.

    A failure of the rollout itself is the agent's `failed` event. A failure of the call has the
    boundary AGENT, or DEADLINE after `timeout_s` seconds. A broken stream is never data, and an
    event is not data if `on_event` raised for it. Raises only CancelledError.
    """
    task = request.task
    fold = Fold(
        request.rollout_id,
        request.attempt,
        run_id=request.run_id,
        task_id=task.task_id,
        repeat_index=repeat_index,
    )
    call = AgentCall(request, task.agent, fold, on_event)
    try:
        with Limit(timeout_s + DEADLINE_SLACK_S):
            outcome = await call.run(connect, timeout_s)
    except TimeoutError:
        return await call.overdue(timeout_s)
    if not isinstance(outcome, RolloutParts):
        return outcome
    rollout = await message_of(outcome)
    failed = outcome.failed is not None
    return failed_rollout(rollout, outcome.size) if failed else rollout


def _violation_error(violation: StreamViolation) -> MeshError:
    """The error that stands for a broken stream law."""
    said = {"rule": violation.rule, "expected": violation.expected, "got": violation.got}
    sentence = f"the agent's stream violates the stream rules: {violation}"
    return MeshError(errors_pb2.ERROR_REASON_CONTRACT_VIOLATED, sentence, metadata=said)


def _is_passing(error: MeshError) -> bool:
    # An attempt that is known there already is done with; the next one has a number of its own.
    if error.reason == errors_pb2.ERROR_REASON_MESSAGE_TOO_LARGE:
        return False  # it would be as large again
    return error.code in _PASSING or error.reason == errors_pb2.ERROR_REASON_ROLLOUT_EXISTS


def failed_rollout(rollout: pb.Rollout, size: int = 0) -> FailedAttempt:
    """The failure of a rollout that the agent reported as failed. size: bytes of its events."""
    return FailedAttempt(rollout.failed.failure, rollout, size)


def cancelled_attempt(agent: str, partial: pb.Rollout, reason: str) -> FailedAttempt:
    """The failure of a rollout that was cancelled for good, with what there is of it."""
    error = MeshError(errors_pb2.ERROR_REASON_CALLER_CANCELLED, reason)
    return _failed_at(pb.BOUNDARY_CANCELLED, error, agent, partial, retry_safe=True)


def failed_recording(parts: RolloutParts, agent: str, error: Exception) -> FailedAttempt:
    """The failure of a rollout that is complete but cannot be written as a row."""
    broken = MeshError(
        errors_pb2.ERROR_REASON_CONTRACT_VIOLATED,
        f"the agent's rollout can't be written as a row: {error}",
        metadata={"rule": "row", "expected": "", "got": ""},
    )
    bare = pb.Rollout(
        run_id=parts.run_id,
        task_id=parts.task_id,
        repeat_index=parts.repeat_index,
        rollout_id=parts.rollout_id,
        attempt=parts.attempt,
    )
    return _failed_at(pb.BOUNDARY_AGENT, broken, agent, bare, retry_safe=False)


def _failed_at(
    boundary: pb.Boundary.ValueType,
    error: MeshError,
    agent: str,
    partial: pb.Rollout,
    retry_safe: bool,
    size: int = 0,
) -> FailedAttempt:
    status = to_status(error)
    failure = pb.Failure(boundary=boundary, status=status, retry_safe=retry_safe, component=agent)
    return FailedAttempt(failure, partial, size)


async def message_of(parts: RolloutParts) -> pb.Rollout:
    """As `RolloutParts.message`. Nothing may change the parts meanwhile."""
    return await asyncio.to_thread(parts.message) if parts.size >= LARGE_BYTES else parts.message()
