"""What becomes of rollouts that have ended: rows on disk, counted, judged with their group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized
from functools import partial
from typing import Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.attempt import AgentConnector, Attempt, cancelled_attempt, failed_recording
from gymmesh_client.dispatch import Assignment
from gymmesh_client.feed import GroupFeed
from gymmesh_client.flight import Flight
from gymmesh_client.groups import GroupBook, Held, group_request, judged, unjudged
from gymmesh_client.journal.writer import Done, waited
from gymmesh_client.measures import count_completed, count_failed
from gymmesh_client.order import Job
from gymmesh_client.output import RunOutput
from gymmesh_client.parts import RolloutParts
from gymmesh_client.reading import read
from gymmesh_client.rows import FailedAttempt, RowWriter, failure_row, row_to_json
from gymmesh_client.summary import Counted, Tally
from gymmesh_client.turns import Turns
from gymmesh_responses import JsonValue
from gymmesh_runtime import metrics
from gymmesh_runtime.errors import MeshError

# Rows made in one turn of the loop; one takes a fraction of a millisecond.
_ROWS_A_TURN: Final = 64
_CANCELLED: Final = "its group was cancelled: nobody wants it any more"


class Outcomes:
    """Writes a run's outcomes.

    Args:
        connect: finds the agents that have groups judged.
        group_s: seconds that judging a group may take.
        stored: called with a rollout's id and attempt once its outcome is on disk.
        feed: where finished groups go; None: nobody wants them.

    Attributes:
        waiting: the outcomes that wait for their turn to be written.
    """

    def __init__(
        self,
        output: RunOutput,
        tally: Tally,
        connect: AgentConnector,
        *,
        group_s: float,
        stored: Callable[[str, int], None],
        feed: GroupFeed | None,
    ) -> None:
        self.groups = GroupBook()
        self._output = output
        self._tally = tally
        self._connect = connect
        self._group_s = group_s
        self._stored = stored
        self._feed = feed
        self._rows = RowWriter()
        self._turns = Turns(_ROWS_A_TURN)
        self.waiting: Sized = self._turns.waiting

    def record(self, task: pb.Task, parts: RolloutParts, done: Done) -> None:
        """Write an outcome, in its turn: a row, or a failure where the rollout makes none.

        `done` is called once it is on disk and counted, or with what went wrong.
        """
        self._turns.call(self._record, task, parts, done)

    def record_held(self, held: Held, done: Done) -> None:
        """As `record`, for a rollout that has awaited its group."""
        self.record(held.task, RolloutParts.of(held.rollout), done)

    def give_up(self, task: pb.Task, failed: FailedAttempt, done: Done) -> None:
        """Write the failure of a rollout that is not tried again; `done` as for `record`."""
        self._turns.call(self._give_up, task, failed, done)

    def _record(self, task: pb.Task, parts: RolloutParts, done: Done) -> None:
        try:
            try:
                reading = read(parts)
                line, figures = self._rows.line(task, reading)
            except ValueError as error:  # CodecError is one: what the agent sent is not JSON
                self._give_up(task, failed_recording(parts, task.agent, error), done)
                return
            # The rollout, where nobody wants it, is let go at once and not when the row is on disk:
            # what comes next finds its memory still at hand.
            rollout_id, attempt = parts.rollout_id, parts.attempt
            wanted = None if self._feed is None else Held(task, parts.message())
            on_disk = partial(self._completed, rollout_id, attempt, figures, wanted, done)
            self._tally.add_waits(reading)
            # Last: once it is put, `on_disk` alone says how it went.
            self._output.put_completed(rollout_id, attempt, line, on_disk)
        except Exception as error:
            done(error)

    def _completed(
        self,
        rollout_id: str,
        attempt: int,
        figures: Counted,
        wanted: Held | None,
        done: Done,
        error: BaseException | None,
    ) -> None:
        """A row is on disk, or is not."""
        try:
            if error is None:
                self._stored(rollout_id, attempt)
                self._tally.add(figures)
                count_completed(figures)
                if wanted is not None:
                    self._shelve(wanted.task, wanted.rollout)
        except Exception as problem:
            error = problem
        done(error)

    def _give_up(self, task: pb.Task, failed: FailedAttempt, done: Done) -> None:
        rollout = failed.partial
        try:
            row = failure_row(task, failed)
            on_disk = partial(self._failed, task, failed, row, done)
            self._output.put_failed(
                rollout.rollout_id,
                rollout.attempt,
                failed.failure.boundary,
                row_to_json(row),
                on_disk,
            )
        except Exception as error:
            done(error)

    def _failed(
        self,
        task: pb.Task,
        failed: FailedAttempt,
        row: dict[str, JsonValue],
        done: Done,
        error: BaseException | None,
    ) -> None:
        """A failure is on disk, or is not."""
        try:
            if error is None:
                rollout = failed.partial
                self._stored(rollout.rollout_id, rollout.attempt)
                self._tally.add_failure(row)
                count_failed(failed.failure.boundary)
                if self._feed is not None and not rollout.HasField("failed"):
                    rollout.failed.failure.CopyFrom(failed.failure)  # the partial one is our own
                self._shelve(task, rollout)
        except Exception as problem:
            error = problem
        done(error)

    async def judge(self, group: list[Held], flight: Flight | None) -> None:
        """Have a whole group judged, and write its rollouts."""
        if flight is not None:
            flight.may_cancel = True  # judging may be cut short: the rollouts then stay pending
        try:
            peer = await self._connect(group[0].task.agent)
            reply = await peer.JudgeGroup(group_request(group), timeout=self._group_s)
            group = judged(group, reply)
        except asyncio.CancelledError:
            if flight is None or flight.left_behind:
                raise
            assert flight.task is not None
            flight.task.uncancel()
            group = unjudged(group, "the run ended before the group was judged")
        except (MeshError, ValueError) as error:
            group = unjudged(group, f"the group could not be judged: {error}")
        if flight is not None:
            flight.may_cancel = False
        for held in group:
            await waited(partial(self.record_held, held))

    def _shelve(self, task: pb.Task, rollout: pb.Rollout) -> None:
        if self._feed is not None and self._feed.shelf.ended(task.task_id, rollout):
            metrics.GROUPS.labels("finished").inc()
            self._feed.wake()

    async def cancelled(
        self, assignments: list[Assignment[Job]], attempt: Attempt | None = None
    ) -> None:
        """Rollouts of a group that nobody wants any more fail, once."""
        failed = []
        for assignment in assignments:
            job = assignment.work
            task = job.task
            if attempt is not None:
                failed.append((task, attempt.cancelled(_CANCELLED)))
                continue
            nothing = pb.Rollout(
                run_id=self._output.run_id,
                task_id=task.task_id,
                repeat_index=job.repeat_index,
                rollout_id=job.rollout_id,
                attempt=assignment.attempt,
            )
            failed.append((task, cancelled_attempt(task.agent, nothing, _CANCELLED)))
        await asyncio.gather(*(waited(partial(self.give_up, task, one)) for task, one in failed))
        for task, _ in failed:
            group = self.groups.ended(task.task_id)
            if group:
                await self.judge(group, None)
