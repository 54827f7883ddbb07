"""The collector: tasks in, rows out.

    run           while the dispatcher has an attempt to start, start a worker for it
    Worker.work   run the attempt, decide what follows from its end, record that

A worker is a task for one attempt, from its start until its outcome is on disk. How many may be
in flight is the dispatcher's: an attempt that has ended no longer counts, so a worker that waits
for the disk or a judge keeps nothing else from starting, until too many of them wait.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from functools import partial
from operator import attrgetter
from typing import Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.agents import AgentConnector, AgentLoad
from gymmesh_client.collector.figures import Figures, Rates
from gymmesh_client.collector.kept_groups import KeptGroups
from gymmesh_client.collector.options import CollectOptions
from gymmesh_client.collector.outcomes import Outcomes
from gymmesh_client.collector.recorder import Recorder
from gymmesh_client.collector.requests import RolloutRequest, missing_rollouts
from gymmesh_client.collector.worker import Worker
from gymmesh_client.collector.workers import CANCEL_S, AttemptInFlight, Workers
from gymmesh_client.dispatch import Assignment, Dispatcher, RunStateError
from gymmesh_client.groups import (
    Group,
    GroupStore,
    GroupStream,
    JudgedGroups,
    SharedStream,
    unjudged,
)
from gymmesh_client.summary import Tally, counts_of

_SAMPLE_S: Final = 1.0
# After so many starts, others on the loop have their turn.
_STARTS_AT_ONCE: Final = 128
# So many outcomes may wait for the disk or for judges, and as many as may be in flight.
_MOST_WAITING: Final = 256
_NO_GROUPS: Final = "groups are only kept if CollectOptions(hand_out=…) is above 0"


class Collector:
    """Collects one run's rollouts; used once.

    Args:
        connect: finds agents.
        output: receives the outcomes; it also knows the run's id and its finished rollouts. The
            collector closes it.
        tally: counts outcomes, those that `output` has already included.
        stored: called with a rollout's id and attempt once its outcome is on disk. Agents may then
            discard its events.
        load: returns the load that agents report; called about once a second.
        kept: with `hand_out`: notes which groups trainers have, and has those that an earlier
            session began. None: a resumed run hands out only groups that it begins.
    """

    def __init__(
        self,
        connect: AgentConnector,
        output: Outcomes,
        options: CollectOptions | None = None,
        *,
        tally: Tally | None = None,
        stored: Callable[[str, int], None] = lambda rollout_id, attempt: None,
        load: Callable[[], AgentLoad] = AgentLoad,
        kept: KeptGroups | None = None,
    ) -> None:
        self.tally = tally or Tally()
        self.output = output
        self.options = options = options or CollectOptions()
        #: Whether `interrupt` was called.
        self.interrupted = False
        self._workers = Workers()
        self._started = 0
        self._tasks: Iterable[pb.Task] = ()
        self._judged = JudgedGroups()
        self._groups: GroupStream | None = None
        self._shared: SharedStream | None = None
        takes_group = None
        if options.hand_out:
            most, parts = options.hand_out, options.hand_out_parts
            store = GroupStore(most, options.concurrency, options.repeats, parts=parts)
            if kept is not None:
                kept.put_into(store)
            log, state = (None, None) if kept is None else (kept.log, kept.state)
            self._groups = GroupStream(store, on_room=self._workers.wake, log=log)
            self._shared = SharedStream(self._groups, options.consumer_lease_s, state=state)
            takes_group = store.takes
        self._dispatcher = Dispatcher(self._numbered_rollouts(), options, takes_group)
        self._recorder = Recorder(output, self.tally, stored, self._groups)
        self._worker = Worker(
            self._dispatcher,
            output,
            options,
            connect,
            self._recorder,
            self._judged,
            self._workers.wake,
        )
        self._ask_load = load
        self._load = AgentLoad()
        self._rates = Rates()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._why = ""
        self._stopped = False
        self._cancelled = set[str]()  # tasks that nobody wants any more
        self._closed = False

    async def run(self, tasks: Iterable[pb.Task]) -> Tally:
        """Collect every rollout of the tasks that has no outcome yet.

        Tasks are read as they are needed; some orders need more than an iterator, see
        `gymmesh_client.collector.order.arrange`. The method ends when every rollout has an outcome.
        If it ends earlier, `why` has the reason. A paused run, or a run whose groups no trainer
        acknowledges, lasts until its `deadline_s`.

        Raises:
            OutputError: outcomes cannot be written.
            UserError: reading the tasks failed.
        """
        self._tasks = tasks
        try:
            self.output.describe(options=self.options)
            deadline_s, grace_s = self.options.deadline_s, self.options.grace_s
            over = f"the run reached its deadline of {deadline_s:g} s"
            self._later("deadline", deadline_s, partial(self._drain, over, grace_s))
            self._sample()
            async with self._workers:
                while (assignment := await self._next()) is not None:
                    if self._groups is not None:
                        self._groups.store.began(assignment.work.group)
                    self._workers.start(assignment, self._worker.work)
                    self._started += 1
                    if self._started % _STARTS_AT_ONCE == 0:
                        await asyncio.sleep(0)
            rest = unjudged(self._judged.rest(), "the run ended before the group was finished")
            await self._worker.record(rest)
            await self._fail_cancelled()
        finally:
            await self._close()
        return self.tally

    # -- the run ------------------------------------------------------------------------------

    def _numbered_rollouts(self) -> Iterator[tuple[RolloutRequest, int]]:
        """What the dispatcher reads: the rollouts without an outcome, with an attempt's number."""
        store = None if self._groups is None else self._groups.store
        missing = missing_rollouts(self._tasks, self.output, self.options, self._judged, store)
        yield from self.output.reserving(missing, attrgetter("rollout_id"))

    async def _fail_cancelled(self) -> None:
        """Record the rollouts of cancelled groups that a run which ended early never read, so that
        a resumption does not run them. Tasks of an iterator cannot be read again.
        """
        if not self._cancelled or isinstance(self._tasks, Iterator):
            return
        wanted = [task for task in self._tasks if task.task_id in self._cancelled]
        missing = missing_rollouts(wanted, self.output, self.options, self._judged, None)
        for work, number in self.output.reserving(missing, attrgetter("rollout_id")):
            if not self.output.has_outcome(work.group, work.repeat_index):
                never_begun = Assignment(work, number, 1, 0, None, 0)
                await self._worker.give_up_unwanted(AttemptInFlight(never_begun))

    async def _next(self) -> Assignment[RolloutRequest] | None:
        """The next attempt to start, once it may; None: no more will."""
        dispatcher = self._dispatcher
        while not self._stopped:
            now = time.monotonic()
            waiting = len(self._workers.attempts) - dispatcher.in_flight
            if waiting <= _MOST_WAITING + dispatcher.limit:
                assignment = dispatcher.next(now)
                if assignment is not None:
                    return assignment
            for dropped in dispatcher.dropped_work():
                self._workers.start(dropped, self._worker.give_up_unwanted)
            if dispatcher.done:
                break
            at = dispatcher.wake_at(now)
            await self._workers.wait(None if at is None else at - now)
        return None

    # -- steering, from signal handlers, a trainer or RunService ------------------------------

    def interrupt(self) -> None:
        """End the run early; for signal handlers of the event loop. Running rollouts may finish
        within a grace period. Rollouts that are still running then are cancelled and have no
        outcome. A second call cancels them at once.
        """
        if self.interrupted:
            self._stop("interrupted")
            return
        self.interrupted = True
        self._drain("interrupted", self.options.grace_s)

    def pause(self) -> None:
        """Pause: start no more rollouts. Raises RunStateError when the run is ending."""
        self._dispatcher.pause()

    def resume(self) -> None:
        """Resume a paused run. Raises RunStateError when the run is ending."""
        self._dispatcher.resume()
        self._workers.wake()

    def drain(self) -> None:
        """Start no more rollouts; running ones finish."""
        self._drain("drained")

    def cancel(self) -> None:
        """Cancel running rollouts, then end."""
        self._stop("cancelled")

    def tune(self, concurrency: int) -> None:
        """Set how many rollouts run at once. Raises RunStateError when it is below 1, or the run
        has ended.
        """
        if self._closed:
            raise RunStateError("the run has ended")
        self._dispatcher.tune(concurrency)
        if self._groups is not None:
            self._groups.store.tune(concurrency)
        self._workers.wake()

    def cancel_group(self, task_id: str) -> None:
        """Collect no more repeats of this task.

        Repeats without an outcome fail (CANCELLED), whether they run or have not started. The group
        is not sent to a trainer. Raises RunStateError if the run has ended.
        """
        if self._closed:
            raise RunStateError("no rollouts are being collected")
        self._cancelled.add(task_id)
        if self._groups is not None:
            self._groups.drop(task_id)
        in_flight = {one.order for one in self._dispatcher.cancel_group(task_id)}
        for attempt in self._workers.attempts:
            if attempt.assignment.order in in_flight:
                attempt.unwanted = True
                attempt.cancel()
        self._workers.wake()

    def begin_no_more_groups(self) -> list[str]:
        """Finish the groups that have started, start no others, and end the run.

        No further task is read, so an iterator of tasks may be endless. Rollouts of groups that did
        not start have no outcome. Returns the ids of the tasks that were read and not started.
        Raises ValueError if the options don't hand out groups.
        """
        store = self.group_stream.store
        self._dispatcher.keep_only(store.has_begun)
        self._workers.wake()
        return store.begin_no_more()

    # -- groups for a trainer -----------------------------------------------------------------

    async def groups(self, *, max_staleness: int | None = None) -> AsyncGenerator[Group, None]:
        """Finished groups as they complete; ends with the run. A request for the next group
        acknowledges the previous group.

        Args:
            max_staleness: skip and count groups whose oldest weights are more than this many
                versions behind the newest version seen or announced by `weights`. Once any version
                is known, weights of unknown version are treated as too old.
        """
        stream = self.group_stream
        async with aclosing(stream.groups(0, max_staleness)) as groups:
            async for group in groups:
                yield group
                stream.acknowledge(group.cursor)

    @property
    def group_stream(self) -> GroupStream:
        """The finished groups. Raises ValueError when the options hand out none."""
        if self._groups is None:
            raise ValueError(_NO_GROUPS)
        return self._groups

    @property
    def shared_stream(self) -> SharedStream:
        """The finished groups for consumers that share them. Raises ValueError as above."""
        if self._shared is None:
            raise ValueError(_NO_GROUPS)
        return self._shared

    def weights(self, version: int) -> None:
        """Announce that the policy's weights now have this version."""
        self.group_stream.store.weights(version)

    # -- how far it is ------------------------------------------------------------------------

    @property
    def why(self) -> str:
        """Why the run ends, or ended, before every rollout had an outcome; empty if it did not."""
        return self._why or self._dispatcher.complaint

    @property
    def state(self) -> str:
        """Running, paused, draining, finished or stopped, in lower case."""
        if self._closed:
            return "stopped" if self.why else "finished"
        return self._dispatcher.state.value

    def figures(self) -> Figures:
        """The run's progress."""
        dispatcher, store = self._dispatcher, self._groups.store if self._groups else None
        in_flight = dispatcher.in_flight
        rollouts, tokens = self._rates.per_s(time.monotonic(), self.tally)
        return Figures(
            tally=self.tally,
            state=self.state,
            why=self.why,
            interrupted=self.interrupted,
            in_flight=in_flight,
            queued=min(in_flight, self._load.waiting),
            ending=max(0, len(self._workers.attempts) - in_flight),
            retrying=dispatcher.retrying,
            width=dispatcher.limit,
            concurrency=dispatcher.concurrency,
            away=dispatcher.away,
            groups=0 if store is None else store.unacknowledged,
            held=store is not None and store.full,
            rollouts_per_s=rollouts,
            tokens_per_s=tokens,
        )

    def _sample(self) -> None:
        """Take a sample of how far it is, and look for overdue attempts; again in a second."""
        now = time.monotonic()
        self._rates.sample(now, self.tally)
        for attempt in self._workers.attempts:
            attempt.cancel_if_due(now)
        self._load = self._ask_load()
        self._dispatcher.load(self._load.target)
        self.figures().show()
        self._workers.wake()
        self._later("sample", _SAMPLE_S, self._sample)

    # -- the end ------------------------------------------------------------------------------

    def _drain(self, why: str, grace_s: float = math.inf) -> None:
        if self._closed:
            return
        self._why = self.why or why
        self._dispatcher.drain()
        if not math.isinf(grace_s):
            self._later("grace", grace_s, partial(self._stop, why))
        self._workers.wake()

    def _stop(self, why: str) -> None:
        """Cancel what is in flight; what is being written is written."""
        self._drain(why)
        if self._closed or self._stopped:
            return
        self._stopped = True
        for attempt in self._workers.attempts:
            attempt.cancel()
        self._later("leave", CANCEL_S, self._workers.leave_behind)

    def _later(self, name: str, seconds: float, callback: Callable[[], None]) -> None:
        """Call back in so many seconds, in place of the timer that has this name."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        if not math.isinf(seconds):
            loop = asyncio.get_running_loop()
            self._timers[name] = loop.call_later(max(0.0, seconds), callback)

    async def _close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._closed = True
        self._dispatcher.drain()
        self.figures().show()
        if self._groups is not None:
            self._groups.close()
        await self.output.close(
            seen={"counts": counts_of(self.tally), "versions_seen": self._recorder.versions_seen()},
            completed=self.tally.completed,
            failed=self.tally.failed,
            interrupted=bool(self.why),
            why=self.why,
        )
