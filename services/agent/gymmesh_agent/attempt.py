"""One attempt of a rollout, from its request to its terminal event and closed session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_agent.agent import Agent, Completion, StopRollout
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
from gymmesh_agent.loop import LoopLimits
from gymmesh_agent.model_caller import ModelFacts
from gymmesh_agent.params import SharedParams, merge_params, read_override, task_items
from gymmesh_agent.scope import RolloutScope, RolloutSetup
from gymmesh_agent.session import Environments, EnvironmentSession
from gymmesh_agent.verdict import (
    add_turn_rewards,
    check_verification,
    mark_group,
    skipped,
)
from gymmesh_runtime import metrics
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.contract import CONTRACT_VERSION
from gymmesh_runtime.errors import MeshError, unforeseen
from gymmesh_runtime.instruments import Level
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.timers import Timer, call_within


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """What all attempts of one agent service share.

    Attributes:
        preamble: the system prompt and the examples, as items.
        background: runs a coroutine that outlives the attempt (the closing of its session).
        in_flight: the gauge of attempts that run.
        models: what is known of the model services.
        params: the parameters of rollouts, one message for all that are equal.
    """

    config: AgentConfig
    agent: Agent
    name: str
    instance_id: str
    directory: PeerDirectory
    environments: Environments
    preamble: Sequence[responses_pb2.Item]
    background: Callable[[Coroutine[Any, Any, None]], None]
    in_flight: Level
    models: ModelFacts = field(default_factory=ModelFacts)
    params: SharedParams = field(default_factory=SharedParams)


class Attempt:
    """Runs one attempt, in a task of its own.

    Args:
        send: where its events go.

    Raises:
        MeshError: FIELD_INVALID, from the constructor: the request cannot be run at all.
    """

    __slots__ = (
        "_attempt",
        "_began",
        "_clock",
        "_events",
        "_items",
        "_limits",
        "_options",
        "_params",
        "_place",
        "_rollout_id",
        "_scope",
        "_session",
        "_started",
        "_stopped",
        "_task",
        "_time_is_up",
        "_timer",
        "_work_task",
        "over",
    )

    def __init__(
        self,
        place: Workplace,
        request: agent_pb2.RunRolloutRequest,
        context: CallContext,
        send: Send,
    ) -> None:
        self._place = place
        self._task = request.task
        self._rollout_id = request.rollout_id
        self._attempt = request.attempt or 1
        self._options = request.options
        self._limits = _limits(place.config, request.options)
        override = read_override(request.options.params_override_json)
        self._params = merge_params(place.config.params, request.task.params, override)
        self._items = [*place.preamble, *task_items(request.task.params)]
        self._clock = RolloutClock(context.deadline, _wall(place.config, request.options))
        self._events = EventStream(self._rollout_id, self._attempt, send)
        self._session = EnvironmentSession(
            task=request.task,
            rollout_id=self._rollout_id,
            attempt=self._attempt,
            directory=place.directory,
            environments=place.environments,
            clock=self._clock,
            call_s=place.config.tool_timeout_s,
            verify_s=place.config.verify_timeout_s,
        )
        self._scope: RolloutScope | None = None
        self._began = time.monotonic()
        self._started = self._began
        self._work_task: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._time_is_up = False
        self._stopped = False
        #: Done once the terminal event was sent, or the attempt was stopped without one.
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def key(self) -> tuple[str, int]:
        """The rollout's id and the attempt's number."""
        return self._rollout_id, self._attempt

    @property
    def stopped(self) -> bool:
        """Whether `stop` came before the end: there is no terminal event then."""
        return self._stopped

    def start(self) -> asyncio.Task[None]:
        """Begin. The task given ends when the session is closed, which may be after `over`."""
        self._place.in_flight.inc()
        self._timer = call_within(self._clock.remaining(), self._time_up)
        self._work_task = asyncio.create_task(self._run())
        return self._work_task

    def stop(self) -> None:
        """Nobody wants the rollout any more: it ends without a terminal event, and its session
        is closed. Harmless when it is over.
        """
        if not self.over.done() and not self._stopped:
            self._stopped = True
            self._cancel()

    async def _run(self) -> None:
        try:
            ending: Completion | rollout_pb2.Failure = await self._work()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            outside = task.cancelling() > 0
            while task.cancelling():
                task.uncancel()  # what follows is not to be taken for cancelled
            if self._time_is_up:
                ending = self._overdue()
            elif outside:
                self._stopped = True
                ending = Completion(rollout_pb2.STOP_REASON_UNSPECIFIED)
            else:
                ending = self._failure(RuntimeError("the agent cancelled itself"))
        except Exception as error:
            ending = self._failure(error)
        if not self.over.done():
            self._end(ending)
            await self._session.close()

    def _time_up(self) -> None:
        self._time_is_up = True
        self._cancel()

    def _cancel(self) -> None:
        """End the work, and go on without it when it takes no notice."""
        assert self._work_task is not None
        self._work_task.cancel()
        call_within(self._clock.stop_s, self._abandon)

    def _abandon(self) -> None:
        if self.over.done():
            return
        self._end(self._overdue())
        self._place.background(self._session.close())

    def _end(self, ending: Completion | rollout_pb2.Failure) -> None:
        """Send the terminal event, unless the attempt was stopped; count; tell who waits."""
        outcome, boundary = "cancelled", "CANCELLED"
        try:
            if self._stopped:
                return
            if isinstance(ending, Completion):
                outcome, boundary = "completed", ""
                self._complete(ending)
            else:
                name = rollout_pb2.Boundary.Name(ending.boundary)
                outcome, boundary = "failed", name.removeprefix("BOUNDARY_")
                self._fail(ending)
        finally:
            self._events.close()
            if self._timer is not None:
                self._timer.stop()
            if self._scope is not None:
                self._scope.close()
            self._measure(outcome, boundary)
            self.over.set_result(None)

    async def _work(self) -> Completion:
        await self._session.open()
        scope = self._scope = self._open_scope()
        await self._events.emit(self._started_event(scope.params, scope.items))
        try:
            completion = await self._place.agent.run(scope)
        except StopRollout as stop:
            completion = stop.completion
        finally:
            scope.close()
        if not isinstance(completion, Completion) or not completion.reason:
            raise TypeError(f"an agent returns a Completion with a reason, not {completion!r}")
        await scope.check_staleness()
        await self._judge(scope, completion)
        return completion

    def _open_scope(self) -> RolloutScope:
        opened = self._session.opened
        config = self._place.config
        params = self._params = self._place.params.with_tools(self._params, opened.tools)
        items = self._items = [*self._items, *opened.items]
        asked = self._options.models
        setup = RolloutSetup(
            agent=self._place.name,
            rollout_id=self._rollout_id,
            attempt=self._attempt,
            params=params,
            items=items,
            options=self._options,
            limits=self._limits,
            models={**config.models, **asked} if asked else config.models,
            model_timeout_s=config.model_timeout_s,
            capture_tokens=config.capture_tokens,
            task_seed=self._task.seed if self._task.HasField("seed") else None,
        )
        return RolloutScope(
            setup,
            directory=self._place.directory,
            session=self._session,
            events=self._events,
            clock=self._clock,
            models=self._place.models,
        )

    def _started_event(
        self, params: responses_pb2.ResponseParams, items: Sequence[responses_pb2.Item]
    ) -> rollout_pb2.RolloutEvent:
        session = self._session
        opened = session.opened
        # Made in its place, as all events here are: a message handed to another is copied.
        event = rollout_pb2.RolloutEvent()
        started = event.started
        started.params.CopyFrom(params)
        started.items.extend(items)
        started.environment = self._task.environment
        started.environment_version = opened.environment_version or session.environment.version
        started.agent = self._place.name
        started.agent_version = self._place.agent.version
        started.agent_instance_id = self._place.instance_id
        started.resource_instance_id = session.instance.id
        started.session_id = opened.session_id
        started.contract_version = CONTRACT_VERSION
        started.preamble_items = len(self._place.preamble)
        if opened.session_id:
            started.seed = opened.seed
        elif self._task.HasField("seed"):
            started.seed = self._task.seed
        self._started = time.monotonic()
        return event

    async def _judge(self, scope: RolloutScope, completion: Completion) -> None:
        began = time.monotonic_ns()
        if self._options.skip_verification:
            verdict = skipped("the request asked for no verification")
        else:
            verdict = await self._verdict(scope, completion)
        event = rollout_pb2.RolloutEvent()
        event.verified.verification.CopyFrom(verdict)
        event.verified.timings.total_us = (time.monotonic_ns() - began) // 1000
        await self._events.emit(event)

    async def _verdict(
        self, scope: RolloutScope, completion: Completion
    ) -> rollout_pb2.Verification:
        request = verify_pb2.VerifyRequest(
            transcript=scope.transcript(),
            stop_reason=completion.reason,
            turn_rewards=scope.turn_rewards,
        )
        verdict = await self._session.verify(request)
        try:
            check_verification(verdict)
            environment = self._session.environment
            verdict = mark_group(verdict, judges_groups=environment.judges_groups)
            return add_turn_rewards(verdict, environment.reward_rule, scope.turn_rewards)
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
            error = MeshError(
                errors_pb2.ERROR_REASON_AGENT_FAULT,
                known.message,
                metadata={"agent": agent, **known.metadata},
            )
        if not isinstance(error, StepFailed):
            error = StepFailed(error, Stage.AGENT, agent)
        return failure_of(error, environment_retry_safe=self._session.retry_safe)

    def _complete(self, completion: Completion) -> None:
        event = rollout_pb2.RolloutEvent()
        completed = event.completed
        completed.stop_reason = completion.reason
        completed.stop_detail = completion.detail
        completed.counts.CopyFrom(self._counts())
        completed.events = self._events.count + 1
        completed.duration_us = self._duration_us()
        self._events.end(event)

    def _fail(self, failure: rollout_pb2.Failure) -> None:
        if not self._events.count:
            # The stream law wants `started` first; it says what is known.
            self._events.put(self._started_event(self._params, self._items))
        event = rollout_pb2.RolloutEvent()
        failed = event.failed
        failed.failure.CopyFrom(failure)
        failed.counts.CopyFrom(self._counts())
        failed.events = self._events.count + 1
        failed.duration_us = self._duration_us()
        self._events.end(event)

    def _counts(self) -> rollout_pb2.Counts:
        return self._scope.counts if self._scope is not None else rollout_pb2.Counts()

    def _duration_us(self) -> int:
        return int((time.monotonic() - self._started) * 1e6)

    def _measure(self, outcome: str, boundary: str) -> None:
        agent = self._place.name
        # The name counts once an environment answered to it: a label takes no made-up values.
        environment = self._task.environment if self._session.instance.id else ""
        self._place.in_flight.dec()
        metrics.ROLLOUTS.labels(agent, environment, outcome, boundary).inc()
        seconds = time.monotonic() - self._began
        metrics.ROLLOUT_SECONDS.labels(agent, environment).observe(seconds)


def _limits(config: AgentConfig, options: agent_pb2.RolloutOptions) -> LoopLimits:
    limits: dict[str, int | None] = {}
    for key in ("max_steps", "max_total_output_tokens"):
        limit: int | None = getattr(config, key)
        if options.HasField(key):
            limit = getattr(options, key)
            if limit is not None and limit < 1:
                raise _invalid(f"options.{key}", f"it must be at least 1, not {limit}")
        limits[key] = limit
    return LoopLimits(**limits)


def _wall(config: AgentConfig, options: agent_pb2.RolloutOptions) -> float:
    if not options.HasField("max_wall_s"):
        return config.max_wall_s
    if not 0 < options.max_wall_s < float("inf"):
        problem = f"it must be a positive number of seconds, not {options.max_wall_s}"
        raise _invalid("options.max_wall_s", problem)
    return options.max_wall_s


def _invalid(field: str, problem: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_FIELD_INVALID,
        f"{field} cannot be used: {problem}",
        metadata={"field": field},
    )
