"""Runs attempts at agents."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.agents import AgentConnector
from gymmesh_client.attempt import DEADLINE_SLACK_S, AgentCall, EventListener
from gymmesh_client.collect.attempts import AttemptInFlight
from gymmesh_client.collect.options import CollectOptions
from gymmesh_client.collect.outcomes import Outcomes
from gymmesh_client.collect.requests import RolloutRequest, agent_request
from gymmesh_client.collect_stream.state import SENT, tried_in_vain_s
from gymmesh_client.dispatch import Assignment, Dispatcher, Ended
from gymmesh_client.rollout import Fold, RolloutParts
from gymmesh_client.rows import FailedAttempt
from gymmesh_runtime.errors import MeshError


class Runner:
    """Runs what the dispatcher assigns.

    Args:
        probed: called when an attempt that is a probe has shown that more may start.
    """

    def __init__(
        self,
        dispatcher: Dispatcher[RolloutRequest],
        output: Outcomes,
        options: CollectOptions,
        connect: AgentConnector,
        probed: Callable[[], None],
    ) -> None:
        self.run_id = output.run_id
        self._dispatcher = dispatcher
        self._output = output
        self._options = options
        self._connect = connect
        self._probed = probed

    async def run(self, attempt: AttemptInFlight) -> RolloutParts | FailedAttempt:
        """Run an attempt to its end, which is a rollout or a typed failure.

        Raises:
            CancelledError: it was cancelled.
            OutputError: the disk takes nothing more.
        """
        assignment, output = attempt.assignment, self._output
        rollout, number = assignment.work, assignment.attempt
        await self.reserve(assignment)
        recording = await output.recording(rollout.rollout_id, number) if output.traced else None
        listener: EventListener | None = None if recording is None else recording.add
        if self._dispatcher.is_probe(assignment):
            listener = self._probe_listener(assignment, listener)
        request = agent_request(rollout, number, self.run_id, self._options.rollout)
        fold = Fold(rollout.rollout_id, number, self.run_id, rollout.group, rollout.repeat_index)
        call = attempt.call = AgentCall(request, rollout.agent, fold, listener)
        seconds = self._seconds_for(assignment)
        attempt.due = time.monotonic() + seconds + DEADLINE_SLACK_S
        try:
            return await call.run(self._connect, seconds)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if attempt.overdue and not attempt.cancelled:
                return call.overdue(seconds)
            if task is None or task.cancelling():
                raise
            return call.broken(error)  # the agent let one out that was meant for a task of its own
        finally:
            attempt.due = math.inf
            if recording is not None:
                recording.end()

    async def reserve(self, assignment: Assignment[RolloutRequest]) -> None:
        """Use up the attempt's number, unless it is, so that no other attempt gets it.

        Raises:
            OutputError: the disk takes nothing more.
        """
        if not assignment.reserved:
            assignment.reserved = True  # first: it is, also where the wait is cancelled
            await self._output.reserve(assignment.work.rollout_id, assignment.attempt)

    def _seconds_for(self, assignment: Assignment[RolloutRequest]) -> float:
        """What an attempt may take, where all attempts of a rollout together may take so much."""
        seconds, together = self._options.timeout_s, self._options.rollout_s
        if math.isinf(together) or assignment.first_at is None:
            return seconds
        return max(0.001, min(seconds, assignment.first_at + together - time.monotonic()))

    def _probe_listener(
        self, assignment: Assignment[RolloutRequest], also: EventListener | None
    ) -> EventListener:
        """Lets the dispatcher learn early that what the rollout needs is there again."""

        def listen(event: pb.RolloutEvent) -> None:
            if self._dispatcher.is_probe(assignment):
                self._dispatcher.event_came(assignment, event.WhichOneof("event") or "")
                self._probed()
            if also is not None:
                also(event)

        return listen


def ended_by(failure: pb.Failure, error: MeshError, *, begun: bool) -> Ended:
    """How an attempt ended, for the dispatcher.

    Args:
        error: the failure's status.
        begun: whether the agent had sent anything of it.
    """
    return Ended(
        reason=error.reason,
        boundary=failure.boundary,
        retry_safe=failure.retry_safe,
        begun=begun,
        retry_after_s=error.retry_after_s,
        component=failure.component,
        message=error.message,
        metadata=error.metadata,
        away_s=tried_in_vain_s(error),
        sent=SENT in error.metadata,
    )
