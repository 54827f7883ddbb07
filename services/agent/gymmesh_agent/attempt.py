"""One attempt of a rollout, from its request to its terminal event and closed session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.agent import Agent, Completion, StopRollout
from gymmesh_agent.attempt_id import AttemptId
from gymmesh_agent.clock import RolloutClock
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.events import EventStream, Send
from gymmesh_agent.failures import (
    Stage,
    StepFailed,
    budget_failure,
    deadline_failure,
    failure_of,
)
from gymmesh_agent.measures import RolloutMetrics
from gymmesh_agent.model_caller import Models
from gymmesh_agent.params import add_items
from gymmesh_agent.scope import Items, RolloutScope
from gymmesh_agent.session import Environments, EnvironmentSession
from gymmesh_agent.terms import Course, Readings, Where
from gymmesh_agent.verdict import (
    add_turn_rewards,
    check_verification,
    mark_group,
    skipped,
)
from gymmesh_runtime.contract import CONTRACT_VERSION
from gymmesh_runtime.errors import MeshError, from_status, unforeseen
from gymmesh_runtime.faults import told
from gymmesh_runtime.in_rollout import RolloutRef, in_rollout
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.timers import Wheel, call_within

# Methods of the class: a message looks through the names of its fields to find its own.
_request_has = agent_pb2.RunRolloutRequest.HasField
_task_has = rollout_pb2.Task.HasField
_copy_event = rollout_pb2.RolloutEvent.CopyFrom
_copy_verdict = rollout_pb2.Verification.CopyFrom
_PENDING = rollout_pb2.VERIFICATION_STATUS_PENDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """What all attempts of one agent service share.

    Attributes:
        preamble: the system prompt and the examples, as items.
        background: runs a coroutine that outlives the attempt (the closing of its session).
        over: is told that an attempt is over, and nothing of it will be sent any more.
        left: is told that the task of an attempt ends, once or twice.
        metrics: of attempts.
        readings: what was read of requests.
        wheel: of the loop that all attempts run in.
    """

    config: AgentConfig
    agent: Agent
    name: str
    instance_id: str
    directory: PeerDirectory
    environments: Environments
    models: Models
    preamble: Sequence[responses_pb2.Item]
    background: Callable[[Coroutine[Any, Any, None]], None]
    over: Callable[[Attempt], None]
    left: Callable[[asyncio.Task[None]], None]
    metrics: RolloutMetrics
    readings: Readings
    wheel: Wheel


class Attempt:
    """Runs one attempt, in a task of its own.

    Args:
        task: the request's.
        environment: the task's, by name.
        deadline: when the caller stops waiting; see RolloutClock.
        send: where its events go.

    Raises:
        MeshError: FIELD_INVALID, from the constructor: the request cannot be run at all.
    """

    __slots__ = (
        "_clock",
        "_events",
        "_judging",
        "_opened",
        "_opening",
        "_place",
        "_ref",
        "_scope",
        "_session",
        "_started",
        "_terms",
        "_time_is_up",
        "_who",
        "_work_task",
        "key",
        "over",
        "stopped",
        "waited_s",
    )
    #: What its agent works with.
    scope_class = RolloutScope

    def __init__(
        self,
        place: Workplace,
        request: agent_pb2.RunRolloutRequest,
        task: rollout_pb2.Task,
        environment: str,
        deadline: float | None,
        send: Send,
    ) -> None:
        rollout_id, attempt = request.rollout_id, request.attempt or 1
        seed = task.seed if _task_has(task, "seed") else None
        self._place = place
        #: The rollout's id and the attempt's number.
        self.key = (rollout_id, attempt)
        self._ref = RolloutRef(rollout_id, request.run_id)
        self._who = who = AttemptId(rollout_id, attempt, f"{rollout_id}/{attempt}", seed)
        options = request.options if _request_has(request, "options") else None
        self._terms = terms = place.readings.terms(options)
        self._opening = place.readings.opening(task.params, terms)
        self._clock = clock = RolloutClock(deadline, terms.max_wall_s)
        self._events = EventStream(rollout_id, attempt, send)
        self._session = EnvironmentSession(place.environments, environment, who, task, clock)
        self._scope: RolloutScope | None = None
        self._started = clock.began
        # When the session was open, and when its verdict was asked for; 0: not yet.
        self._opened = self._judging = 0.0
        #: Seconds that it waited for a place before it was made; whoever let it wait sets them.
        self.waited_s = 0.0
        self._work_task: asyncio.Task[None] | None = None
        self._time_is_up = False
        #: Whether `stop` came before the end: there is no terminal event then.
        self.stopped = False
        #: Done once the terminal event was sent, or the attempt was stopped without one.
        self.over: asyncio.Future[None] = place.wheel.loop.create_future()

    def start(self) -> asyncio.Task[None]:
        """Begin. The task given ends when the session is closed, which may be after `over`; the
        workplace is told when it does.
        """
        place = self._place
        place.metrics.in_flight.value += 1.0
        self._clock.start(self._time_up, place.wheel)
        task = self._work_task = place.wheel.loop.create_task(self._run())
        return task

    def stop(self) -> None:
        """Nobody wants the rollout any more: it ends without a terminal event, and its session
        is closed. Harmless when it is over.
        """
        if not self.over.done() and not self.stopped:
            self.stopped = True
            self._cancel()

    async def _run(self) -> None:
        in_rollout.set(self._ref)  # its task is its own
        ending: Completion | rollout_pb2.Failure
        try:
            await self._session.open()
            self._opened = time.monotonic()
            offer = self._session.offer
            course, items = self._opening.course(offer.tools, offer.tools_key), offer.items
            place = self._place
            scope = self._scope = self.scope_class(
                place.name,
                self._who,
                self._terms,
                course,
                items,
                place.models,
                self._session,
                self._events,
                self._clock,
            )
            room = self._events.put(self._started_event(course, items))
            if room is not None:
                await room
            try:
                ending = await place.agent.run(scope)
            except StopRollout as stop:
                ending = stop.completion
            finally:
                scope.close()
            if not isinstance(ending, Completion) or not ending.reason:
                raise TypeError(f"an agent returns a Completion with a reason, not {ending!r}")
            if self._terms.max_staleness is not None:
                await scope.check_staleness()
            await self._judge(scope, ending)
        except asyncio.CancelledError:
            ending = self._cancelled()
        except Exception as error:
            ending = self._failure(error)
        task = self._work_task
        assert task is not None
        try:
            if not self.over.done():
                self._end(ending)
                await self._close()
        finally:
            self._place.left(task)

    async def _close(self) -> None:
        began = time.monotonic()
        await self._session.close()
        environment = self._met()
        if environment:
            took = time.monotonic() - began
            self._place.metrics.closed(environment, self._who.rollout_id, took)

    def _cancelled(self) -> Completion | rollout_pb2.Failure:
        """The ending of an attempt that was cancelled, by its own timer or from outside."""
        task = asyncio.current_task()
        assert task is not None
        outside = task.cancelling() > 0
        while task.cancelling():
            task.uncancel()  # what follows is not to be taken for cancelled
        if self._time_is_up:
            return self._overdue()
        if outside:
            self.stopped = True
            return Completion(rollout_pb2.STOP_REASON_UNSPECIFIED)
        return self._failure(RuntimeError("the agent cancelled itself"))

    def _time_up(self) -> None:
        self._time_is_up = True
        self._cancel()

    def _cancel(self) -> None:
        """End the work, and go on without it when it takes no notice."""
        task = self._work_task
        assert task is not None
        # It may never get to say so itself.
        task.add_done_callback(self._place.left)
        task.cancel()
        call_within(self._clock.stop_s, self._abandon)

    def _abandon(self) -> None:
        if self.over.done():
            return
        if self._scope is not None:
            self._scope.close()
        self._end(self._overdue())
        self._place.background(self._close())

    def _end(self, ending: Completion | rollout_pb2.Failure) -> None:
        """Send the terminal event, unless the attempt was stopped; count; tell who waits."""
        outcome, boundary = "cancelled", "CANCELLED"
        try:
            if self.stopped:
                return
            if isinstance(ending, Completion):
                outcome, boundary = "completed", ""
                self._complete(ending)
            else:
                name = rollout_pb2.Boundary.Name(ending.boundary)
                outcome, boundary = "failed", name.removeprefix("BOUNDARY_")
                self._count_failure(boundary, ending)
                self._fail(ending)
        finally:
            self._events.close()
            self._clock.stop()
            self._measure(outcome, boundary)
            self._place.over(self)
            self.over.set_result(None)

    def _started_event(self, course: Course, session_items: Items) -> rollout_pb2.RolloutEvent:
        session = self._session
        seed = self._who.seed
        where = (session.name, session.version, session.instance_id)
        event = rollout_pb2.RolloutEvent()
        _copy_event(event, course.started or self._started_of(course, where))
        started = event.started
        if session_items:
            add_items(started.items, session_items)
        if where != course.started_at:
            _put_where(started, where)
        if session.session_id:
            started.session_id = session.session_id
            started.seed = session.seed
        elif seed is not None:
            started.seed = seed
        self._started = time.monotonic()
        return event

    def _started_of(self, course: Course, where: Where) -> rollout_pb2.RolloutEvent:
        """What all attempts of a course begin with, mostly at one place."""
        place = self._place
        event = course.started = rollout_pb2.RolloutEvent()
        course.started_at = where
        started = event.started
        _put_where(started, where)
        started.params.CopyFrom(course.params)
        add_items(started.items, course.items)
        started.agent = place.name
        started.agent_version = place.agent.version
        started.agent_instance_id = place.instance_id
        started.contract_version = CONTRACT_VERSION
        started.preamble_items = len(place.preamble)
        return event

    async def _judge(self, scope: RolloutScope, completion: Completion) -> None:
        self._judging = began = time.monotonic()
        if self._terms.skip_verification:
            verdict = skipped("the request asked for no verification")
        else:
            session, rewards = self._session, scope.turn_rewards
            try:
                reply = await session.verify(scope.transcript(), completion.reason, rewards)
            except MeshError as error:
                raise StepFailed(error, Stage.VERIFY, session.name) from error
            verdict = self._checked(reply.verification, rewards)
        event = rollout_pb2.RolloutEvent()
        verified = event.verified
        _copy_verdict(verified.verification, verdict)
        verified.timings.total_us = int((time.monotonic() - began) * 1e6)
        room = self._events.put(event)
        if room is not None:
            await room

    def _checked(
        self, verdict: rollout_pb2.Verification, turn_rewards: Sequence[float]
    ) -> rollout_pb2.Verification:
        """The rollout's verdict, from what its verifier answered."""
        environment = self._session.environment
        try:
            status = check_verification(verdict)
            if status == _PENDING and environment.judges_groups:
                verdict = mark_group(verdict)
            if turn_rewards:
                verdict = add_turn_rewards(verdict, environment.reward_rule, turn_rewards)
            return verdict
        except MeshError as error:
            component = verdict.verifier or self._session.name
            raise StepFailed(error, Stage.VERIFY, component) from error

    def _overdue(self) -> rollout_pb2.Failure:
        if not self._clock.deadline_first:
            return budget_failure(self._clock.max_wall_s)
        return deadline_failure(self._place.name, environment_retry_safe=self._session.retry_safe)

    def _failure(self, error: BaseException) -> rollout_pb2.Failure:
        agent = self._place.name
        if not isinstance(error, MeshError):
            known = unforeseen(error, f"agent '{agent}'")
            about = told(error)
            place = f" at {about['at']}" if "at" in about else ""
            error = MeshError(
                errors_pb2.ERROR_REASON_AGENT_FAULT,
                f"agent '{agent}' raised {about['exception']}{place}",
                metadata={"agent": agent, **known.metadata, **about},
            )
        if not isinstance(error, StepFailed):
            error = StepFailed(error, Stage.AGENT, agent)
        return failure_of(error, environment_retry_safe=self._session.retry_safe)

    def _complete(self, completion: Completion) -> None:
        event = rollout_pb2.RolloutEvent()
        completed = event.completed
        completed.stop_reason = completion.reason
        if completion.detail:
            completed.stop_detail = completion.detail
        if self._scope is not None:
            self._scope.tally.write(completed.counts)
        completed.events = self._events.count + 1
        completed.duration_us = self._duration_us()
        self._events.end(event)

    def _fail(self, failure: rollout_pb2.Failure) -> None:
        if not self._events.count:
            # The stream law wants `started` first; it says what is known.
            self._events.put(self._started_event(self._opening.course(()), ()))
        event = rollout_pb2.RolloutEvent()
        failed = event.failed
        failed.failure.CopyFrom(failure)
        if self._scope is not None:
            self._scope.tally.write(failed.counts)
        failed.events = self._events.count + 1
        failed.duration_us = self._duration_us()
        self._events.end(event)

    def _duration_us(self) -> int:
        return int((time.monotonic() - self._started) * 1e6)

    def _met(self) -> str:
        """The environment's name once one answered to it: a label takes no made-up values."""
        return self._session.name if self._session.instance_id else ""

    def _count_failure(self, boundary: str, failure: rollout_pb2.Failure) -> None:
        reason = from_status(failure.status).reason_name
        self._place.metrics.failed(self._met(), self._who.rollout_id, boundary, reason)

    def _measure(self, outcome: str, boundary: str) -> None:
        environment, rollout_id = self._met(), self._who.rollout_id
        measures, scope = self._place.metrics, self._scope
        measures.in_flight.value -= 1.0
        took = time.monotonic() - self._clock.began
        measures.ended(environment, rollout_id, outcome, boundary, took, self._stages(took))
        if outcome == "completed" and scope is not None:
            measures.completed(
                environment,
                rollout_id,
                model_calls=scope.tally.model_calls,
                tool_calls=scope.tally.tool_calls,
                output_tokens=scope.tally.output_tokens,
                weights_lag=scope.weights_lag,
            )

    def _stages(self, took: float) -> dict[str, float]:
        """The seconds spent in each stage, of those that it took in all."""
        opening = self._opened - self._clock.began if self._opened else took
        stages = {"queue": self.waited_s, "create_session": opening}
        if self._scope is not None:
            tally = self._scope.tally
            stages["model_queue"] = tally.model_queue_us / 1e6
            stages["model"] = (tally.model_us - tally.model_queue_us) / 1e6
            stages["call_tool"] = tally.tool_us / 1e6
            stages["next_turn"] = tally.turn_us / 1e6
        if self._judging:
            stages["verify"] = time.monotonic() - self._judging
        return stages


def _put_where(started: rollout_pb2.Started, where: Where) -> None:
    (
        started.environment,
        started.environment_version,
        started.resource_instance_id,
    ) = where
