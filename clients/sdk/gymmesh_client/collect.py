"""The collector: tasks in, rows out.

It does what the dispatcher decides: calls agents, writes outcomes, counts them once they are
on disk. `interrupt` ends it early: what is in flight may end within a grace period, then is
cancelled and has no outcome; a second `interrupt` cancels at once.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.attempt import AgentConnector, failed_recording, run_attempt
from gymmesh_client.dispatcher import Assignment, Dispatcher, RetryPolicy, Verdict
from gymmesh_client.groups import (
    GroupBook,
    Held,
    awaits_group,
    group_request,
    judged,
    unjudged,
)
from gymmesh_client.output import RunOutput
from gymmesh_client.rows import FailedAttempt, completed_row, failure_row, row_to_json
from gymmesh_client.summary import Tally
from gymmesh_responses import JsonValue
from gymmesh_runtime.errors import MeshError, from_status

_SEED_STEP: Final = 1_000_003
_CANCEL_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """How to collect.

    Attributes:
        repeats: rollouts per task.
        concurrency: the most rollouts in flight.
        timeout_s: seconds that one attempt may take.
        grace_s: seconds that attempts in flight get after the first `interrupt`.
        group_s: seconds that judging a group may take, where rollouts are judged together.
        retry: when to try again.
        rollout: options sent with each rollout.
    """

    repeats: int = 1
    concurrency: int = 64
    timeout_s: float = 900.0
    grace_s: float = 10.0
    group_s: float = 300.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    rollout: agent_pb2.RolloutOptions | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One rollout to collect."""

    task: pb.Task
    repeat_index: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is; `tally` is the collector's own and changes."""

    tally: Tally
    in_flight: int
    draining: bool


class Collector:
    """Collects one run's rollouts; used once.

    Args:
        connect: finds agents.
        output: where the outcomes go; it also knows the run's id and what is done already. The
            collector closes it.
        tally: counts outcomes, those that `output` has already included.
        on_progress: called after each change; must be quick.
        stored: called with a rollout's id and attempt once how it ended is on disk; agents need
            not keep its events any more.
    """

    def __init__(
        self,
        connect: AgentConnector,
        output: RunOutput,
        options: CollectOptions,
        *,
        tally: Tally | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        stored: Callable[[str, int], None] = lambda rollout_id, attempt: None,
    ) -> None:
        self.tally = tally or Tally()
        self._connect = connect
        self._options = options
        self._on_progress = on_progress
        self._stored = stored
        self._output = output
        self._groups = GroupBook()
        self._changed = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._attempting: set[asyncio.Task[None]] = set()
        self._fatal: BaseException | None = None
        self._stop_at = math.inf
        self._stopped = False
        self._interrupts = 0
        self._dispatcher: Dispatcher[Job] | None = None

    @property
    def interrupted(self) -> bool:
        """Whether `interrupt` was called."""
        return self._interrupts > 0

    def interrupt(self) -> None:
        """End early: the first call drains, the second stops. For signal handlers of the loop."""
        self._interrupts += 1
        self._stop_at = time.monotonic()
        if self._interrupts == 1:
            self._stop_at += self._options.grace_s
        if self._dispatcher is not None:
            self._dispatcher.drain()
        self._report()
        self._changed.set()

    async def run(self, tasks: Iterable[pb.Task]) -> Tally:
        """Collect every rollout of the tasks that has no outcome yet.

        The tasks are read as they are needed.

        Raises:
            OutputError: outcomes cannot be written.
            UserError: what reading the tasks raises.
        """
        dispatcher = self._dispatcher = Dispatcher(
            self._output.reserving(self._jobs(tasks), self._rollout_id),
            self._options.concurrency,
            self._options.retry,
        )
        if self.interrupted:
            dispatcher.drain()
        try:
            await self._drive(dispatcher)
        finally:
            await self._cancel(self._running)
            if self._fatal is None:
                for held in unjudged(self._groups.rest(), "the run ended before its group did"):
                    await self._record(held)
            await self._output.close(
                completed=self.tally.completed,
                failed=self.tally.failed,
                interrupted=self.interrupted,
            )
        return self.tally

    async def _drive(self, dispatcher: Dispatcher[Job]) -> None:
        while True:
            now = time.monotonic()
            started = False
            while (assignment := dispatcher.next(now)) is not None:
                self._start(dispatcher, assignment)
                started = True
            if started:
                self._report()
            if self._fatal is not None:
                raise self._fatal
            if (dispatcher.done or self._stopped) and not self._running:
                return
            if now >= self._stop_at:
                # Those that are being written have an outcome and are let finish.
                await self._cancel(self._attempting)
                # One that does not heed its cancellation is left behind, not waited for.
                self._running -= self._attempting
                self._stop_at, self._stopped = math.inf, True
                continue
            wake = min(self._stop_at, dispatcher.wake_at() or math.inf)
            await self._wait(wake - now)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(None if math.isinf(seconds) else max(seconds, 0.0)):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    def _start(self, dispatcher: Dispatcher[Job], assignment: Assignment[Job]) -> None:
        work = asyncio.create_task(self._carry_out(dispatcher, assignment))
        self._running.add(work)
        self._attempting.add(work)
        work.add_done_callback(self._ended)

    def _ended(self, work: asyncio.Task[None]) -> None:
        self._running.discard(work)
        self._attempting.discard(work)
        if not work.cancelled() and work.exception() is not None:
            self._fatal = self._fatal or work.exception()
        self._changed.set()

    async def _carry_out(self, dispatcher: Dispatcher[Job], assignment: Assignment[Job]) -> None:
        job = assignment.job
        try:
            if assignment.tries > 1:
                await self._output.reserve(self._rollout_id(job), assignment.attempt)
            outcome = await self._attempt(job, assignment.attempt)
        except asyncio.CancelledError:
            dispatcher.dropped()
            raise
        work = asyncio.current_task()
        assert work is not None
        if work not in self._running:
            # It was left behind when the run was stopped; the files are closed by now.
            dispatcher.dropped()
            return
        # From here on there is an outcome, and no interrupt may come between it and disk.
        self._attempting.discard(work)
        if isinstance(outcome, FailedAttempt):
            await self._settle(dispatcher, assignment, outcome)
        else:
            dispatcher.completed()
            held = Held(job.task, outcome)
            if awaits_group(outcome):
                await self._judge(self._groups.hold(held))
            else:
                await self._record(held)
                await self._judge(self._groups.ended(job.task.task_id))
        self._report()

    async def _attempt(self, job: Job, attempt: int) -> pb.Rollout | FailedAttempt:
        recording = await self._output.recording(self._rollout_id(job), attempt)
        try:
            return await run_attempt(
                self._connect,
                self._request(job, attempt),
                repeat_index=job.repeat_index,
                timeout_s=self._options.timeout_s,
                on_event=None if recording is None else recording.add,
            )
        finally:
            if recording is not None:
                recording.end()

    async def _record(self, held: Held) -> None:
        """Write an outcome: a row, or a failure where the rollout makes none."""
        row, outcome = _row_or_failure(held.task, held.rollout)
        if row is not None:
            rollout = held.rollout
            await self._output.completed(rollout.rollout_id, rollout.attempt, row_to_json(row))
            self._stored(rollout.rollout_id, rollout.attempt)
            self.tally.add_row(row)
        elif isinstance(outcome, FailedAttempt):
            await self._give_up(held.task, outcome)

    async def _give_up(self, task: pb.Task, failed: FailedAttempt) -> None:
        row, partial = failure_row(task, failed), failed.partial
        await self._output.failed(
            partial.rollout_id, partial.attempt, failed.failure.boundary, row_to_json(row)
        )
        self._stored(partial.rollout_id, partial.attempt)
        self.tally.add_failure(row)

    async def _judge(self, group: list[Held]) -> None:
        """Have a whole group judged, and write its rollouts; an empty one is nothing to do."""
        if not group:
            return
        work = asyncio.current_task()
        assert work is not None
        self._attempting.add(work)  # judging may be cut short: the rollouts then stay pending
        try:
            peer = await self._connect(group[0].task.agent)
            reply = await peer.JudgeGroup(group_request(group), timeout=self._options.group_s)
            group = judged(group, reply)
        except asyncio.CancelledError:
            work.uncancel()
            group = unjudged(group, "the run ended before the group was judged")
        except (MeshError, ValueError) as error:
            group = unjudged(group, f"the group could not be judged: {error}")
        finally:
            self._attempting.discard(work)
        for held in group:
            await self._record(held)

    async def _settle(
        self, dispatcher: Dispatcher[Job], assignment: Assignment[Job], failed: FailedAttempt
    ) -> None:
        verdict = dispatcher.failed(
            assignment,
            time.monotonic(),
            retry_safe=failed.failure.retry_safe,
            retry_after_s=from_status(failed.failure.status).retry_after_s,
        )
        if verdict is Verdict.RETRY:
            self.tally.retried += 1
            rollout = self._rollout_id(assignment.job)
            await self._output.tried(rollout, assignment.attempt, failed.failure.boundary)
            self._stored(rollout, assignment.attempt)
            return
        await self._give_up(assignment.job.task, failed)
        await self._judge(self._groups.ended(assignment.job.task.task_id))

    def _request(self, job: Job, attempt: int) -> agent_pb2.RunRolloutRequest:
        request = agent_pb2.RunRolloutRequest(
            task=job.task,
            rollout_id=self._rollout_id(job),
            attempt=attempt,
            options=self._options.rollout,
            run_id=self._output.run_id,
        )
        if job.task.HasField("seed"):
            # The request holds a copy of the task, so this changes nothing that was given.
            request.task.seed = repeat_seed(job.task.seed, job.repeat_index)
        return request

    def _rollout_id(self, job: Job) -> str:
        return self._output.rollout_id(job.task.task_id, job.repeat_index)

    def _jobs(self, tasks: Iterable[pb.Task]) -> Iterator[Job]:
        for task in tasks:
            task_id = task.task_id
            repeats = range(self._options.repeats)
            wanted = [one for one in repeats if not self._output.has_outcome(task_id, one)]
            self._groups.expect(task_id, len(wanted))
            for repeat in wanted:
                yield Job(task, repeat)

    async def _cancel(self, works: set[asyncio.Task[None]]) -> None:
        pending = list(works)
        for work in pending:
            work.cancel()
        if pending:
            await asyncio.wait(pending, timeout=_CANCEL_S)

    def _report(self) -> None:
        in_flight = 0 if self._dispatcher is None else self._dispatcher.in_flight
        self._on_progress(Progress(self.tally, in_flight, self.interrupted))


def repeat_seed(seed: int, repeat_index: int) -> int:
    """A repeat's seed: the task's for repeat 0, another one for each further repeat."""
    shifted = seed + _SEED_STEP * repeat_index
    return (shifted + 2**63) % 2**64 - 2**63


def _row_or_failure(
    task: pb.Task, rollout: pb.Rollout
) -> tuple[dict[str, JsonValue] | None, pb.Rollout | FailedAttempt]:
    try:
        return completed_row(task, rollout), rollout
    except ValueError as error:  # CodecError is one: what the agent sent is not JSON
        return None, failed_recording(rollout, task.agent, error)
