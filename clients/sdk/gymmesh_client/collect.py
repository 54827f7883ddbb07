"""The collector: tasks in, rows out.

It does what the dispatcher decides: sends attempts to agents, writes outcomes, and counts them
once they are on disk. One task for each rollout in flight, which goes on with the next one that
starts; everything else is callbacks.

`interrupt` ends a run early: what is in flight may end within a grace period, then is cancelled
and has no outcome; a second `interrupt` cancels at once.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing
from functools import partial
from operator import attrgetter
from typing import Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.attempt import AgentConnector
from gymmesh_client.carrier import Carrier
from gymmesh_client.collect_options import CollectOptions
from gymmesh_client.dispatch import Dispatcher, RunStateError
from gymmesh_client.feed import GroupFeed
from gymmesh_client.figures import AgentLoad, Figures, Rates
from gymmesh_client.flight import Flight
from gymmesh_client.groups import unjudged
from gymmesh_client.jobs import missing_jobs
from gymmesh_client.journal.writer import waited
from gymmesh_client.measures import show_figures
from gymmesh_client.order import Job
from gymmesh_client.outcomes import Outcomes
from gymmesh_client.output import RunOutput
from gymmesh_client.shelf import Group, GroupShelf
from gymmesh_client.summary import Tally
from gymmesh_client.workers import Workers

_CANCEL_S: Final = 5.0
_TICK_S: Final = 1.0
# So many starts, then others on the loop have their turn.
_STARTS_AT_ONCE: Final = 128
# With so many rows waiting for their turn, tasks no longer go on with another rollout at once.
_ROWS_WAITING_MOST: Final = 512
# So many outcomes may wait for the disk or for judges, and as many as may be in flight.
_ENDING_MOST: Final = 256


class Collector:
    """Collects one run's rollouts; used once.

    Args:
        connect: finds agents.
        output: where the outcomes go; it also knows the run's id and what is done already. The
            collector closes it.
        tally: counts outcomes, those that `output` has already included.
        stored: called with a rollout's id and attempt once how it ended is on disk; agents need
            not keep its events any more.
        load: what the agents say; asked about once a second.
    """

    def __init__(
        self,
        connect: AgentConnector,
        output: RunOutput,
        options: CollectOptions | None = None,
        *,
        tally: Tally | None = None,
        stored: Callable[[str, int], None] = lambda rollout_id, attempt: None,
        load: Callable[[], AgentLoad] = AgentLoad,
    ) -> None:
        self.tally = tally or Tally()
        self.output = output
        self.options = options = options or CollectOptions()
        #: Why the run ends, or ended, before every rollout had an outcome; empty when it does not.
        self.why = ""
        #: Whether `interrupt` was called.
        self.interrupted = False
        self._connect = connect
        self._stored = stored
        self._ask_load = load
        self._load = AgentLoad()
        self._rates = Rates()
        self._feed: GroupFeed | None = None
        if options.hand_out:
            shelf = GroupShelf(options.hand_out, options.concurrency, options.repeats)
            self._feed = GroupFeed(shelf, self._pump_soon)
        self._outcomes = Outcomes(
            output,
            self.tally,
            connect,
            group_s=options.group_s,
            stored=stored,
            feed=self._feed,
        )
        self._dispatcher: Dispatcher[Job] | None = None
        self._carrier: Carrier | None = None
        self._concurrency = options.concurrency
        self._paused = False
        self._flights: set[Flight] = set()
        self._workers: Workers | None = None
        self._chores: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._pumping: asyncio.Handle | None = None
        self._stopped = False
        self._closed = False

    async def run(self, tasks: Iterable[pb.Task]) -> Tally:
        """Collect every rollout of the tasks that has no outcome yet.

        The tasks are read as they are needed; some orders need more than an iterator, see
        `gymmesh_client.order.arrange`. Ends when every rollout has an outcome, or `why` says why
        not; a paused run, and one whose groups nobody takes, goes on until `deadline_s`.

        Raises:
            OutputError: outcomes cannot be written.
            UserError: what reading the tasks raises.
        """
        shelf = None if self._feed is None else self._feed.shelf
        jobs = missing_jobs(tasks, self.output, self.options, self._outcomes.groups, shelf)
        numbered = self.output.reserving(jobs, attrgetter("rollout_id"))
        takes = None if shelf is None else shelf.takes
        dispatcher = self._dispatcher = Dispatcher(numbered, self.options, takes)
        dispatcher.tune(self._concurrency)
        self._workers = workers = Workers(self._landed)
        self._carrier = Carrier(
            dispatcher,
            self._outcomes,
            self.output,
            self.options,
            self._connect,
            tally=self.tally,
            stored=self._stored,
            changed=self._pump_soon,
            next_flight=self._next_flight,
            go_on=workers.start,
            landed=self._landed,
        )
        if self.why:
            dispatcher.drain()
        elif self._paused:
            dispatcher.pause()
        self._over = asyncio.get_running_loop().create_future()
        self._later("deadline", self.options.deadline_s, self._out_of_time)
        intact = False
        try:
            self._tick()
            self._pump()
            await self._over
            intact = True
        finally:
            await self._wind_up(intact)
        return self.tally

    # -- steering, from signal handlers, a trainer or RunService ------------------------------

    def interrupt(self) -> None:
        """End early: the first call drains, the second stops. For signal handlers of the loop."""
        if self.interrupted:
            self._stop("interrupted")
            return
        self.interrupted = True
        self._drain("interrupted", self.options.grace_s)

    def pause(self) -> None:
        """Start nothing for now. Raises RunStateError when the run is ending."""
        self._must_go_on("paused")
        self._paused = True
        if self._dispatcher is not None:
            self._dispatcher.pause()

    def resume(self) -> None:
        """Go on. Raises RunStateError when the run is ending."""
        self._must_go_on("resumed")
        self._paused = False
        if self._dispatcher is not None:
            self._dispatcher.resume()
            self._pump_soon()

    def drain(self) -> None:
        """Start nothing more; what is in flight ends in its own time."""
        self._drain("drained", math.inf)

    def cancel(self) -> None:
        """Cancel what is in flight, then end."""
        self._stop("cancelled")

    def tune(self, concurrency: int) -> None:
        """Another number of rollouts in flight. Raises RunStateError when it is below 1, or the
        run is over.
        """
        if concurrency < 1:
            raise RunStateError(f"concurrency must be at least 1, not {concurrency}")
        if self._closed:
            raise RunStateError("the run is over")
        self._concurrency = concurrency
        if self._feed is not None:
            self._feed.shelf.tune(concurrency)
        if self._dispatcher is not None:
            self._dispatcher.tune(concurrency)
            self._pump_soon()

    def cancel_group(self, task_id: str) -> None:
        """Nobody wants the repeats of this task any more.

        Those without an outcome fail (CANCELLED), once, whether in flight or not started yet;
        the group is not handed out. Raises RunStateError when the run is over.
        """
        if self._dispatcher is None or self._closed:
            raise RunStateError("no rollouts are being collected")
        if self._feed is not None:
            self._feed.shelf.drop(task_id)
        unwanted = {one.order for one in self._dispatcher.cancel_group(task_id)}
        for flight in self._flights:
            if flight.assignment.order in unwanted and not flight.concluded:
                flight.unwanted = True
                flight.cancel()
        self._pump_soon()

    # -- groups for a trainer -----------------------------------------------------------------

    async def groups(self, *, max_staleness: int | None = None) -> AsyncGenerator[Group, None]:
        """Finished groups as they complete; ends with the run. Asking for the next one
        acknowledges the one before.

        Args:
            max_staleness: leave out groups whose oldest weights are more than this many versions
                behind the newest that was seen, or said by `weights`. They are counted.
        """
        feed = self.feed
        async with aclosing(feed.groups(0, max_staleness)) as groups:
            async for group in groups:
                yield group
                feed.acknowledge(group.cursor)

    @property
    def feed(self) -> GroupFeed:
        """The finished groups. Raises ValueError when the options hand out none."""
        if self._feed is None:
            raise ValueError("groups are kept only with CollectOptions(hand_out=…) above 0")
        return self._feed

    def weights(self, version: int) -> None:
        """The policy's weights are at this version now."""
        self.feed.shelf.weights(version)

    # -- how far it is ------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """Running, paused, draining, finished or stopped, in lower case."""
        if self._closed:
            return "stopped" if self.why else "finished"
        if self.why:
            return "draining"
        return "paused" if self._paused else "running"

    def figures(self) -> Figures:
        """How far the run is."""
        dispatcher, shelf = self._dispatcher, self._feed.shelf if self._feed else None
        in_flight = 0 if dispatcher is None else dispatcher.in_flight
        rollouts, tokens = self._rates.per_s(time.monotonic(), self.tally)
        return Figures(
            tally=self.tally,
            state=self.state,
            why=self.why,
            in_flight=in_flight,
            queued=min(in_flight, self._load.waiting),
            ending=max(0, len(self._flights) - in_flight),
            retrying=0 if dispatcher is None else dispatcher.retrying,
            width=self._concurrency if dispatcher is None else dispatcher.limit,
            concurrency=self._concurrency,
            away=() if dispatcher is None else tuple(dispatcher.away),
            groups=0 if shelf is None else shelf.unacknowledged,
            held=shelf is not None and shelf.full,
            rollouts_per_s=rollouts,
            tokens_per_s=tokens,
        )

    # -- starting -----------------------------------------------------------------------------

    def _pump_soon(self) -> None:
        if self._pumping is None and self._over is not None and not self._over.done():
            self._pumping = self._over.get_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Start what the dispatcher gives; end the run when nothing is left."""
        self._pumping = None
        dispatcher, over = self._dispatcher, self._over
        assert dispatcher is not None
        assert over is not None
        if over.done():
            return
        now = time.monotonic()
        try:
            more = self._start_some(dispatcher, now)
        except Exception as error:  # reading tasks, or reserving their attempts
            over.set_exception(error)
            return
        self._note_complaint(dispatcher)
        if (self._stopped or dispatcher.done) and not self._flights and not self._chores:
            over.set_result(None)
        elif more:
            self._pump_soon()
        else:
            at = dispatcher.wake_at(now)
            self._later("pump", math.inf if at is None else at - now, self._pump_soon)

    def _start_some(self, dispatcher: Dispatcher[Job], now: float) -> bool:
        """Start a few; whether there may be more to start at once."""
        carrier, workers = self._carrier, self._workers
        assert carrier is not None
        assert workers is not None
        for _ in range(_STARTS_AT_ONCE):
            flight = self._begin(dispatcher, now)
            if flight is None:
                break
            workers.start(flight, carrier.carry_out(flight))
        else:
            return True
        dropped = dispatcher.dropped_work()
        if dropped:
            self._chore(self._outcomes.cancelled(dropped))
        return False

    def _begin(self, dispatcher: Dispatcher[Job], now: float) -> Flight | None:
        """The flight to start now, if any."""
        flights = len(self._flights)
        if flights > _ENDING_MOST:
            ending = flights - dispatcher.in_flight
            if ending > _ENDING_MOST and ending > _ENDING_MOST + dispatcher.limit:
                return None  # the disk, or a judge, does not keep up
        assignment = dispatcher.next(now)
        if assignment is None:
            return None
        flight = Flight(assignment)
        self._flights.add(flight)
        if self._feed is not None:
            self._feed.shelf.began(assignment.work.group)
        return flight

    def _next_flight(self, over: Flight) -> Flight | None:
        """What the task of a flight that is over, but for its row, carries out next; None: it ends.

        A new one, by way of the pump, costs many times as much.
        """
        assert self._dispatcher is not None
        assert self._workers is not None
        assert self._over is not None
        assert over.task is not None
        flight: Flight | None = None
        # Rows that wait for their turn tell how much this turn of the loop has done; and a task
        # that did not heed its cancellation does nothing more.
        if not (
            len(self._outcomes.waiting) >= _ROWS_WAITING_MOST
            or self._over.done()
            or over.task.cancelling()
        ):
            try:
                flight = self._begin(self._dispatcher, time.monotonic())
            except Exception as error:  # as in the pump
                self._over.set_exception(error)
        self._workers.follow(over, flight)
        if flight is None:
            self._pump_soon()
        return flight

    def _landed(self, flight: Flight, error: BaseException | None) -> None:
        if flight.left_behind:
            return
        self._flights.discard(flight)
        if error is not None:
            self._fail(error)
        if not flight.concluded:
            assert self._dispatcher is not None
            self._dispatcher.dropped(flight.assignment)
            if flight.unwanted and self._over is not None and not self._over.done():
                self._chore(self._outcomes.cancelled([flight.assignment], flight.attempt))
        self._pump_soon()

    def _chore(self, work: Coroutine[None, None, None]) -> None:
        assert self._over is not None
        chore = self._over.get_loop().create_task(work)
        self._chores.add(chore)
        chore.add_done_callback(self._chore_done)

    def _chore_done(self, chore: asyncio.Task[None]) -> None:
        self._chores.discard(chore)
        error = None if chore.cancelled() else chore.exception()
        if error is not None:
            self._fail(error)
        self._pump_soon()

    # -- time, and the end --------------------------------------------------------------------

    def _tick(self) -> None:
        now = time.monotonic()
        self._rates.sample(now, self.tally)
        for flight in self._flights:
            flight.cut_off_if_due(now)
        self._load = self._ask_load()
        show_figures(self.figures())
        if self._dispatcher is not None:
            self._dispatcher.load(self._load.target)
            self._pump_soon()
        self._later("tick", _TICK_S, self._tick)

    def _later(self, name: str, seconds: float, callback: Callable[[], None]) -> None:
        """Call back in so many seconds, in place of the timer that has this name."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        if not math.isinf(seconds):
            loop = asyncio.get_running_loop()
            self._timers[name] = loop.call_later(max(0.0, seconds), callback)

    def _must_go_on(self, wanted: str) -> None:
        if self.why or self._closed:
            raise RunStateError(f"a run that is ending cannot be {wanted}")

    def _note_complaint(self, dispatcher: Dispatcher[Job]) -> None:
        if dispatcher.complaint and not self.why:
            self.why = dispatcher.complaint

    def _out_of_time(self) -> None:
        self._drain(f"the {self.options.deadline_s:g} s for the run are over", self.options.grace_s)

    def _drain(self, why: str, grace_s: float) -> None:
        if self._closed:
            return
        self.why = self.why or why
        if self._dispatcher is not None:
            self._dispatcher.drain()
        if not math.isinf(grace_s):
            self._later("grace", grace_s, partial(self._stop, why))
        self._pump_soon()

    def _stop(self, why: str) -> None:
        """Cancel what is in flight; what is being written ends as ever."""
        self._drain(why, math.inf)
        if self._closed or self._stopped:
            return
        self._stopped = True
        for flight in self._flights:
            flight.cancel()
        self._later("leave", _CANCEL_S, self._leave_behind)

    def _leave_behind(self) -> None:
        """What does not heed its cancellation is not waited for."""
        for flight in [flight for flight in self._flights if flight.may_cancel]:
            flight.left_behind = True
            self._flights.discard(flight)
        self._pump_soon()

    def _fail(self, error: BaseException) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_exception(error)

    async def _wind_up(self, intact: bool) -> None:
        for timer in self._timers.values():
            timer.cancel()
        if self._pumping is not None:
            self._pumping.cancel()
        going = [flight.task for flight in self._flights if flight.task is not None]
        going += self._chores
        for task in going:
            task.cancel()
        if going:
            await asyncio.wait(going, timeout=_CANCEL_S)
        for flight in self._flights:
            flight.left_behind = True
        self._flights.clear()
        if intact:
            rest = self._outcomes.groups.rest()
            for held in unjudged(rest, "the run ended before its group did"):
                await waited(partial(self._outcomes.record_held, held))
        self._closed = True
        show_figures(self.figures())
        if self._feed is not None:
            self._feed.close()
        await self.output.close(
            completed=self.tally.completed,
            failed=self.tally.failed,
            interrupted=bool(self.why),
            why=self.why,
        )
