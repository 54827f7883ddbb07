"""What is done for one rollout: an attempt at an agent, and then its outcome."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from functools import partial

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.attempt import DEADLINE_SLACK_S, AgentConnector, Attempt, EventListener
from gymmesh_client.collect_options import CollectOptions
from gymmesh_client.collect_stream.book import tried_in_vain_s
from gymmesh_client.dispatch import Assignment, Dispatcher, Ended, Verdict
from gymmesh_client.flight import Flight
from gymmesh_client.fold import Fold
from gymmesh_client.groups import Held, awaits_group
from gymmesh_client.jobs import request_for
from gymmesh_client.journal.writer import waited
from gymmesh_client.measures import count_retry
from gymmesh_client.order import Job
from gymmesh_client.outcomes import Outcomes
from gymmesh_client.output import RunOutput
from gymmesh_client.rows import FailedAttempt
from gymmesh_client.summary import Tally
from gymmesh_runtime.errors import from_status


class Carrier:
    """Carries out what the dispatcher assigns.

    Args:
        tally: counts attempts that are followed by another one.
        stored: called with a rollout's id and attempt once how an attempt ended is on disk, where
            another one follows.
        changed: called when there may be more to start.
        next_flight: called with a flight that is over but for its row; gives the one that its task
            is to carry out next, if any.
        go_on: called with a flight and what is left to be done for it, in a task of its own.
        landed: called with a flight whose outcome is on disk, or with what went wrong.
    """

    def __init__(
        self,
        dispatcher: Dispatcher[Job],
        outcomes: Outcomes,
        output: RunOutput,
        options: CollectOptions,
        connect: AgentConnector,
        *,
        tally: Tally,
        stored: Callable[[str, int], None],
        changed: Callable[[], None],
        next_flight: Callable[[Flight], Flight | None],
        go_on: Callable[[Flight, Coroutine[None, None, None]], None],
        landed: Callable[[Flight, BaseException | None], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._outcomes = outcomes
        self._output = output
        self._options = options
        self._all_bounded = not math.isinf(options.rollout_s)
        self._connect = connect
        self._tally = tally
        self._stored = stored
        self._changed = changed
        self._next_flight = next_flight
        self._go_on = go_on
        self._landed = landed

    async def carry_out(self, flight: Flight) -> None:
        """Run the attempt, and see to what follows from its end; then the next one's, and so on.

        What it was given last may be `writing` when it returns: its row is on the way to disk.
        """
        # One coroutine and one task for many rollouts, since each costs as much as a row's writing.
        following: Flight | None = flight
        options = self._options
        while following is not None:
            flight = following
            assignment, output = flight.assignment, self._output
            job, number = assignment.work, assignment.attempt
            if assignment.failures:
                await output.reserve(job.rollout_id, number)
            recording = await output.recording(job.rollout_id, number) if output.traced else None
            listener: EventListener | None = None if recording is None else recording.add
            if self._dispatcher.is_probe(assignment):
                listener = self._tells(assignment, listener)
            request = request_for(job, number, output.run_id, options.rollout)
            fold = Fold(job.rollout_id, number, output.run_id, job.group, job.repeat_index)
            attempt = flight.attempt = Attempt(request, job.agent, fold, listener)
            seconds = self._seconds_for(assignment) if self._all_bounded else options.timeout_s
            flight.due = time.monotonic() + seconds + DEADLINE_SLACK_S
            try:
                outcome = await attempt.run(self._connect, seconds)
            except asyncio.CancelledError:
                if not flight.was_cut_off():
                    raise
                outcome = attempt.overdue(seconds)
            finally:
                if recording is not None:
                    recording.end()
            if flight.left_behind:
                return
            # From here on there is an outcome, and no interrupt may come between it and disk.
            flight.may_cancel, flight.concluded = False, True
            if isinstance(outcome, FailedAttempt):
                await self._settle(flight, attempt.begun, outcome)
                return
            self._dispatcher.completed(assignment)
            if awaits_group(outcome):
                await self._hold(Held(job.task, outcome.message()), flight)
                return
            # No task waits for the disk: there are as many rows on the way as rollouts in flight.
            flight.writing, flight.attempt = True, None
            self._outcomes.record(job.task, outcome, partial(self._written, flight))
            del outcome, attempt, fold, request, listener, recording  # not for the next one's time
            following = self._next_flight(flight)

    async def _hold(self, held: Held, flight: Flight) -> None:
        """Keep a rollout until its group is to be judged."""
        self._changed()
        group = self._outcomes.groups.hold(held)
        if group:
            await self._outcomes.judge(group, flight)

    def _written(self, flight: Flight, error: BaseException | None) -> None:
        """A row is on disk, or is not."""
        flight.writing = False
        if error is None and not flight.left_behind:
            group = self._outcomes.groups.ended(flight.assignment.work.group)
            if group:
                self._go_on(flight, self._outcomes.judge(group, flight))
                return
        self._landed(flight, error)

    async def _settle(self, flight: Flight, begun: bool, failed: FailedAttempt) -> None:
        assignment, failure = flight.assignment, failed.failure
        error = from_status(failure.status)
        verdict = self._dispatcher.failed(
            assignment,
            time.monotonic(),
            Ended(
                reason=error.reason,
                boundary=failure.boundary,
                retry_safe=failure.retry_safe,
                begun=begun,
                retry_after_s=error.retry_after_s,
                component=failure.component,
                message=error.message,
                metadata=error.metadata,
                away_s=tried_in_vain_s(error),
            ),
        )
        self._changed()
        if verdict is Verdict.PUT_BACK:
            self._tally.put_back += 1
        elif verdict is Verdict.RETRY or verdict is Verdict.LEAVE:
            if verdict is Verdict.RETRY:
                self._tally.add_retry(failure.boundary, error.reason_name)
                count_retry(failure.boundary, error.reason_name)
            rollout_id = failed.partial.rollout_id
            await self._output.tried(rollout_id, assignment.attempt, failure.boundary)
            self._stored(rollout_id, assignment.attempt)
        else:
            task = assignment.work.task
            await waited(partial(self._outcomes.give_up, task, failed))
            group = self._outcomes.groups.ended(task.task_id)
            if group:
                await self._outcomes.judge(group, flight)

    def _seconds_for(self, assignment: Assignment[Job]) -> float:
        """What an attempt may take where all attempts of a rollout together may take so much."""
        seconds, all_together = self._options.timeout_s, self._options.rollout_s
        if assignment.first_at is not None:
            left = assignment.first_at + all_together - time.monotonic()
            seconds = max(0.001, min(seconds, left))
        return seconds

    def _tells(self, assignment: Assignment[Job], add: EventListener | None) -> EventListener:
        """Tells the dispatcher early that what the rollout needs is there again."""

        def told(event: pb.RolloutEvent) -> None:
            if self._dispatcher.is_probe(assignment):
                self._dispatcher.heard(assignment, event.WhichOneof("event") or "")
                self._changed()
            if add is not None:
                add(event)

        return told
