"""What a worker does with an attempt: run it, decide what follows from its end, record that."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.agents import AgentConnector
from gymmesh_client.attempt import (
    DEADLINE_SLACK_S,
    AgentCall,
    EventListener,
    cancelled_attempt,
    failed_rollout,
)
from gymmesh_client.collect_stream import SENT, tried_in_vain_s
from gymmesh_client.collector.options import CollectOptions
from gymmesh_client.collector.outcomes import Outcomes
from gymmesh_client.collector.recorder import Recorder
from gymmesh_client.collector.requests import RolloutRequest, agent_request
from gymmesh_client.collector.workers import AttemptInFlight
from gymmesh_client.dispatch import Assignment, Decision, Dispatcher, Ended
from gymmesh_client.groups import HeldRollout, JudgedGroups, judge, left_pending, unjudged
from gymmesh_client.rollout import Fold, RolloutParts
from gymmesh_client.rows import FailedAttempt
from gymmesh_runtime.errors import MeshError, from_status

_GROUP_CANCELLED: Final = "its group was cancelled"


@dataclass(frozen=True, slots=True)
class Worker:
    """Does the work of a run's attempts, each in a task of its own.

    Attributes:
        connect: finds agents.
        groups: the groups whose repeats are judged together.
        room: called when more attempts may start.
    """

    dispatcher: Dispatcher[RolloutRequest]
    output: Outcomes
    options: CollectOptions
    connect: AgentConnector
    recorder: Recorder
    groups: JudgedGroups
    room: Callable[[], None]

    async def work(self, attempt: AttemptInFlight) -> None:
        """Run an attempt, and see that what follows is on disk. Raises OutputError."""
        attempt.outcome = await attempt.while_cancellable(
            partial(self._run, attempt), partial(self.dispatcher.dropped, attempt.assignment)
        )
        if isinstance(attempt.outcome, RolloutParts) and attempt.outcome.failed is not None:
            rollout = await self.recorder.message(attempt.outcome)
            attempt.outcome = failed_rollout(rollout, attempt.outcome.size)
        if isinstance(attempt.outcome, RolloutParts):
            await self._completed(attempt)
        elif attempt.outcome is not None:
            await self._failed(attempt, attempt.outcome)
        elif attempt.unwanted:
            await self.give_up_unwanted(attempt)

    async def give_up_unwanted(self, attempt: AttemptInFlight) -> None:
        """Record that a rollout fails since its group was cancelled, begun or not."""
        if attempt.call is not None:
            failed = await attempt.call.cancelled(_GROUP_CANCELLED)
        else:
            await self._reserve(attempt.assignment)
            rollout = attempt.assignment.work
            nothing = pb.Rollout(
                run_id=self.output.run_id,
                task_id=rollout.group,
                repeat_index=rollout.repeat_index,
                rollout_id=rollout.rollout_id,
                attempt=attempt.assignment.attempt,
            )
            failed = cancelled_attempt(rollout.agent, nothing, _GROUP_CANCELLED)
        await self._give_up(attempt, failed)

    async def record(self, held: Iterable[HeldRollout]) -> None:
        """Record rollouts that have awaited their groups."""
        await asyncio.gather(*(self._record(one) for one in held))

    async def _record(self, held: HeldRollout) -> None:
        parts = RolloutParts.of(held.rollout)
        parts.size = held.rollout.ByteSize()
        await self.recorder.completed(held.task, parts)

    # -- the attempt ----------------------------------------------------------------------------

    async def _run(self, attempt: AttemptInFlight) -> RolloutParts | FailedAttempt:
        """Run an attempt to its end, which is a rollout or a typed failure."""
        assignment, output = attempt.assignment, self.output
        rollout, number = assignment.work, assignment.attempt
        await self._reserve(assignment)
        recording = await output.recording(rollout.rollout_id, number) if output.traced else None
        listener: EventListener | None = None if recording is None else recording.add
        if self.dispatcher.is_probe(assignment):
            listener = self._probe_listener(assignment, listener)
        request = agent_request(rollout, number, output.run_id, self.options.rollout)
        fold = Fold(rollout.rollout_id, number, output.run_id, rollout.group, rollout.repeat_index)
        call = attempt.call = AgentCall(request, rollout.agent, fold, listener)
        seconds = self._seconds_for(assignment)
        attempt.due = time.monotonic() + seconds + DEADLINE_SLACK_S
        try:
            return await call.run(self.connect, seconds)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if attempt.overdue and not attempt.cancelled:
                return await call.overdue(seconds)
            if task is None or task.cancelling():
                raise
            # A cancellation of one of the agent's own tasks, which the agent did not catch.
            return await call.broken(error)
        finally:
            attempt.due = math.inf
            if recording is not None:
                recording.end()

    async def _reserve(self, assignment: Assignment[RolloutRequest]) -> None:
        """Use up the attempt's number, unless it is, so that no other attempt gets it."""
        if not assignment.reserved:
            assignment.reserved = True  # first: it is, also where the wait is cancelled
            await self.output.reserve(assignment.work.rollout_id, assignment.attempt)

    def _seconds_for(self, assignment: Assignment[RolloutRequest]) -> float:
        """What an attempt may take, where all attempts of a rollout together may take so much."""
        seconds, together = self.options.timeout_s, self.options.rollout_s
        if math.isinf(together) or assignment.first_at is None:
            return seconds
        return max(0.001, min(seconds, assignment.first_at + together - time.monotonic()))

    def _probe_listener(
        self, assignment: Assignment[RolloutRequest], also: EventListener | None
    ) -> EventListener:
        """Lets the dispatcher learn early that what the rollout needs is there again."""

        def listen(event: pb.RolloutEvent) -> None:
            if self.dispatcher.is_probe(assignment):
                self.dispatcher.event_came(assignment, _shown_by(event))
                self.room()
            if also is not None:
                also(event)

        return listen

    # -- its end --------------------------------------------------------------------------------

    async def _completed(self, attempt: AttemptInFlight) -> None:
        self.dispatcher.completed(attempt.assignment)
        self.room()
        rollout = attempt.assignment.work
        if attempt.awaits_group:
            message = await self.recorder.message(attempt.take_parts())
            held = HeldRollout(rollout.task, message)
            if self.groups.in_part(rollout.group):
                await self.record([left_pending(held)])
                group = self.groups.ended(rollout.group)
            else:
                group = self.groups.hold(held)
        else:
            await self.recorder.completed(rollout.task, attempt.take_parts())
            group = self.groups.ended(rollout.group)
        if group:
            await self._judge(attempt, group)

    async def _failed(self, attempt: AttemptInFlight, failed: FailedAttempt) -> None:
        error = from_status(failed.failure.status)
        begun = attempt.call is not None and attempt.call.begun
        ended = ended_by(failed.failure, error, begun=begun)
        decision = self.dispatcher.failed(attempt.assignment, time.monotonic(), ended)
        self.room()
        if decision is Decision.GIVE_UP:
            await self._give_up(attempt, failed)
        elif decision is Decision.PUT_BACK:
            self.recorder.tally.put_back += 1
        else:
            if decision is Decision.RETRY:
                self.recorder.retried(failed.failure.boundary, error.reason_name)
            await self.recorder.tried(failed)

    async def _give_up(self, attempt: AttemptInFlight, failed: FailedAttempt) -> None:
        rollout = attempt.assignment.work
        await self.recorder.failed(rollout.task, failed)
        if group := self.groups.ended(rollout.group):
            await self._judge(attempt, group)

    async def _judge(self, attempt: AttemptInFlight, group: list[HeldRollout]) -> None:
        """Have a whole group judged, and record its rollouts."""
        judged = await attempt.while_cancellable(
            partial(judge, group, self.connect, self.options.group_s),
            partial(unjudged, group, "the run ended before the group was scored"),
        )
        await self.record(judged)


def _shown_by(event: pb.RolloutEvent) -> str:
    """The kind of an event. Empty for the `started` that only precedes a failure: where no session
    was opened, it shows nothing of the environment.
    """
    kind = event.WhichOneof("event") or ""
    return "" if kind == "started" and not event.started.session_id else kind


def ended_by(failure: pb.Failure, error: MeshError, *, begun: bool) -> Ended:
    """How an attempt ended, for the dispatcher; `error` is the failure's status."""
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
