"""One attempt of a rollout, from its request to its terminal event and closed session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.agent import Agent
from gymmesh_agent.context import RolloutContext
from gymmesh_agent.environment import Environments, SessionClient, skipped
from gymmesh_agent.events import EventSink, EventStream
from gymmesh_agent.failures import budget_failure, deadline_failure, failure_of, step_failed
from gymmesh_agent.gateway.server import GatewayServer
from gymmesh_agent.loop import Completion, StopRollout
from gymmesh_agent.media import AttemptMedia
from gymmesh_agent.model import ModelServices
from gymmesh_agent.plan import AttemptId, RolloutClock, RolloutPlans, add_items
from gymmesh_agent.sandboxes import AttemptSandboxes
from gymmesh_agent.telemetry import (
    MaybeSpan,
    RolloutMetrics,
    attempt_span,
    record_end,
    record_verdict,
    verify_span,
)
from gymmesh_runtime.contract import CONTRACT_VERSION
from gymmesh_runtime.errors import from_status
from gymmesh_runtime.telemetry import RolloutRef, current_rollout
from gymmesh_runtime.text.authors_code import as_exception
from gymmesh_sandbox_access import RolloutAgent, SandboxServices

AttemptOutcome: TypeAlias = Completion | rollout_pb2.Failure
"""How an attempt ended, unless it was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """What all attempts of one agent service share.

    Attributes:
        preamble_items: how many items the agent puts before a task's.
        background: runs a coroutine in a task that the service awaits when it closes.
        gateway: where programs call the model; open if an agent opened it.
    """

    agent: Agent
    name: str
    instance_id: str
    plans: RolloutPlans
    environments: Environments
    models: ModelServices
    sandboxes: SandboxServices
    preamble_items: int
    metrics: RolloutMetrics
    background: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]
    gateway: GatewayServer


async def run_attempt(attempt: RunningAttempt) -> None:
    """Run one attempt: send its events, the terminal event last, then close the session.

    The attempt ends with the terminal event, so closing the session delays nothing. An attempt that
    is stopped has no terminal event. Raises nothing that a rollout can cause.
    """
    agent, session, events = attempt.agent, attempt.session, attempt.events
    current_rollout.set(RolloutRef(attempt.id.rollout_id, attempt.id.run_id))
    outcome: AttemptOutcome | None
    with attempt_span(attempt.id, agent.name, session.name) as span:
        try:
            await session.open()
            context = attempt.opened()
            attempt.program = await agent.agent.program_of(context)
            await events.emit(attempt.started())
            for grant in session.opened.sandboxes:
                attempt.sandboxes.opened(grant.sandbox, grant.role)
            completion = await run_agent(agent.agent, context)
            attempt.end_sandboxes()
            await context.check_staleness()
            verified, took_s = await attempt.verify(context, completion)
            record_verdict(span, verified.verification)
            await events.verified(verified, took_s)
            outcome = completion
        except Exception as error:
            outcome = attempt.failure(error)
        except asyncio.CancelledError:
            outcome = attempt.cut_off()
        _uncancel()
        if attempt.end(outcome, span):
            await attempt.close_session()


async def run_agent(agent: Agent, context: RolloutContext) -> Completion:
    """Run the agent's own coroutine, and return how the rollout completed.

    Raises:
        TypeError: the agent returned something that is not a Completion.
        Exception: the agent's exception. For a non-Exception such as sys.exit(), an exception that
            names it.
    """
    try:
        completion = await agent.run(context)
    except StopRollout as stop:
        completion = stop.completion
    except BaseException as error:
        if (fault := as_exception(error)) is error:
            raise
        raise fault from error
    finally:
        context.close()
    if not isinstance(completion, Completion) or not completion.reason:
        raise TypeError(
            f"{type(agent).__name__}.run must return a Completion with a reason, not {completion!r}"
        )
    return completion


def _uncancel() -> None:
    """Clear the task's cancellation, so that later calls don't treat it as their own."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


class RunningAttempt:
    """A running attempt: what its steps share, and the task that runs them.

    Args:
        deadline: when the caller stops waiting, in `time.monotonic` seconds; see RolloutClock.
        waited_s: seconds that the attempt waited for a place before it ran.

    Attributes:
        key: the rollout's id and the attempt's number.
        stopped: whether the attempt was stopped before its end. It then has no terminal event.
        program: the program that runs as the agent; None: no program, or not yet known.

    Raises:
        MeshError: FIELD_INVALID, from the constructor: the request cannot be run at all.
    """

    def __init__(
        self,
        agent: AgentContext,
        request: agent_pb2.RunRolloutRequest,
        deadline: float | None,
        sink: EventSink,
        waited_s: float = 0.0,
    ) -> None:
        task = request.task
        self.agent = agent
        self.id = AttemptId(
            rollout_id=request.rollout_id,
            attempt=request.attempt or 1,
            seed=task.seed if task.HasField("seed") else None,
            run_id=request.run_id,
        )
        self.key = (self.id.rollout_id, self.id.attempt)
        self.plan = agent.plans.read(request.options, task.params)
        self.clock = RolloutClock(deadline, self.plan.max_wall_s)
        self.events = EventStream(self.id.rollout_id, self.id.attempt, sink, self.plan.bounds)
        self.media = AttemptMedia(self.events.note)
        self.session = SessionClient(
            agent.environments, task.environment, self.id, task, self.clock
        )
        self.sandboxes = AttemptSandboxes(
            agent.sandboxes,
            agent.agent.sandboxes,
            self.id,
            RolloutAgent(agent.name, agent.instance_id),
            self.clock.hop,
            self.events.note,
        )
        self.stopped = False
        self.program: rollout_pb2.Program | None = None
        self._waited_s = waited_s
        self._ended = asyncio.Event()
        self._overdue = False
        self._context: RolloutContext | None = None
        self._task: asyncio.Task[None] | None = None
        # Seconds from the attempt's start to its open session, and to the request for a verdict.
        self._opened_s: float | None = None
        self._verifying_s: float | None = None

    async def run(self) -> None:
        """Run the attempt in a task of its own, which closes the session after the attempt's end.

        Returns when the attempt has ended. If this call is cancelled, the attempt ends without a
        terminal event.
        """
        self.agent.metrics.in_flight.inc()
        self._task = self.agent.background(run_attempt(self))
        timer = self._task.get_loop().call_later(self.clock.remaining(), self._time_is_up)
        try:
            await self._ended.wait()
        except asyncio.CancelledError:
            self.stop()
            raise
        finally:
            timer.cancel()

    def stop(self) -> None:
        """End the rollout without a terminal event, and close its session. Does nothing if the
        rollout has ended.
        """
        if not self._ended.is_set() and not self.stopped:
            self.stopped = True
            self.events.discard()
            self.agent.background(self._cut_short())

    def _time_is_up(self) -> None:
        self._overdue = True
        self.agent.background(self._cut_short())

    async def _cut_short(self) -> None:
        """Cancel the attempt's task and wait for its end, but no longer than `stop_s`, because
        an agent may ignore its cancellation.
        """
        if self._task is None or self._ended.is_set():
            return
        self._task.cancel()
        try:
            async with asyncio.timeout(self.clock.stop_s):
                await self._ended.wait()
        except TimeoutError:
            if self.end(None if self.stopped else self.overdue(), None):
                self.agent.background(self.close_session())

    def cut_off(self) -> AttemptOutcome | None:
        """How the attempt ends after its task was cancelled; None: without a terminal event."""
        if self.stopped:
            return None
        if self._overdue:
            return self.overdue()
        return self.failure(RuntimeError("the agent's code cancelled its own asyncio task"))

    def opened(self) -> RolloutContext:
        """The context of the agent, once the session is open."""
        agent, session = self.agent, self.session
        self._opened_s = self.clock.elapsed()
        self.plan = agent.plans.with_tools(self.plan, session.opened.tools)
        self.sandboxes.borrow(session.opened.sandboxes)
        self._context = RolloutContext(
            agent.name,
            agent.instance_id,
            self.id,
            self.plan,
            session,
            agent.models,
            agent.gateway,
            self.events,
            self.media,
            self.clock,
            self.sandboxes,
        )
        return self._context

    def started(self) -> rollout_pb2.RolloutEvent:
        """The first event: what is known of the rollout, whether or not the session is open."""
        agent, session, plan = self.agent, self.session, self.plan
        event = rollout_pb2.RolloutEvent()
        started = event.started
        started.params.CopyFrom(plan.params)
        started.environment = session.name
        started.environment_version = session.version
        started.agent = agent.name
        started.agent_version = agent.agent.version
        started.agent_instance_id = agent.instance_id
        started.resource_instance_id = session.instance_id
        started.session_id = session.session_id
        seed = session.opened.seed if session.session_id else self.id.seed
        if seed is not None:
            started.seed = seed
        started.contract_version = CONTRACT_VERSION
        started.preamble_items = agent.preamble_items
        if self.program is not None:
            started.program.CopyFrom(self.program)
        items = plan.items if self._context is None else self._context.items
        add_items(started.items, self.media.all_named(items))
        return event

    def end_sandboxes(self) -> None:
        """End the agent's own sandboxes in the background, after the agent has returned.

        Raises MeshError if a sandbox was lost during the attempt, even if the agent handled that:
        work after the loss is not judged.
        """
        if self.sandboxes.in_use:
            self.sandboxes.returned()
            self.agent.background(self.sandboxes.end())
            self.sandboxes.check()

    async def verify(
        self, context: RolloutContext, completion: Completion
    ) -> tuple[rollout_pb2.Verified, float]:
        """The rollout's verdict, with the session's final state if it is kept, and the seconds
        that the verdict took. Raises StepFailed, and MeshError if the attempt has too many
        events or bytes.
        """
        if self._ended.is_set():
            raise RuntimeError(
                "the rollout has ended, but the agent's code ignored the "
                "cancellation and still runs"
            )
        self.events.check()
        self._verifying_s = self.clock.elapsed()
        with verify_span(self.session.name):
            if self.plan.skip_verification:
                why = "the request asked to skip the verification"
                verified = rollout_pb2.Verified(verification=skipped(why))
            else:
                verified, reply = await self.session.verify(
                    context.transcript(), completion.reason, context.turn_rewards
                )
                self.sandboxes.note_reply(reply)
                if not self.plan.keep_final_state:
                    verified.ClearField("final_state")
        return verified, self.clock.elapsed() - self._verifying_s

    def overdue(self) -> rollout_pb2.Failure:
        """The failure of an attempt that ran out of time."""
        if not self.clock.deadline_first:
            return budget_failure(self.clock.max_wall_s)
        return deadline_failure(self.agent.name, environment_retry_safe=self.session.retry_safe)

    def failure(self, error: Exception) -> rollout_pb2.Failure:
        """The failure of an attempt that ended with this error."""
        failed = step_failed(error, self.agent.name)
        self.sandboxes.gone(failed)
        return failure_of(failed, environment_retry_safe=self.session.retry_safe)

    def end(self, outcome: AttemptOutcome | None, span: MaybeSpan) -> bool:
        """Send the terminal event, unless the attempt was stopped, and count the attempt.

        Returns False if the attempt had already ended.
        """
        if self._ended.is_set():
            return False
        tally = self._context.tally if self._context is not None else None
        if outcome is None or self.stopped:
            outcome, self.stopped = None, True
        if self._context is not None:
            self._context.close()
        record_end(span, outcome, tally)
        try:
            counts = tally.counts() if tally is not None else None
            if isinstance(outcome, Completion):
                self.events.completed(outcome, counts)
            elif outcome is not None:
                self.events.failed(outcome, counts, self.started)
        finally:
            self.events.close()
            self._measure(outcome)
            self._ended.set()
        return True

    async def close_session(self) -> None:
        """Close the session and measure how long that took. Raises no error of the environment."""
        if self.sandboxes.in_use:
            await self.sandboxes.end()
        began = time.monotonic()
        await self.session.close()
        environment = self._environment_label()
        if environment:
            took = time.monotonic() - began
            self.agent.metrics.closed(environment, self.id.rollout_id, took)

    def _environment_label(self) -> str:
        """The environment's name, or empty if no instance was found: metrics labels have no
        invented names.
        """
        return self.session.name if self.session.instance_id else ""

    def _measure(self, outcome: AttemptOutcome | None) -> None:
        environment, rollout_id = self._environment_label(), self.id.rollout_id
        metrics, context, took = self.agent.metrics, self._context, self.clock.elapsed()
        metrics.in_flight.inc(-1.0)
        result, boundary = "cancelled", "CANCELLED"
        if isinstance(outcome, Completion):
            result, boundary = "completed", ""
            if context is not None:
                metrics.completed(environment, rollout_id, context.tally, context.weights_lag)
        elif outcome is not None:
            result = "failed"
            boundary = rollout_pb2.Boundary.Name(outcome.boundary).removeprefix("BOUNDARY_")
            reason = from_status(outcome.status).reason_name
            metrics.failed(environment, rollout_id, boundary, reason)
        metrics.ended(environment, rollout_id, result, boundary, took, self._stages(took))

    def _stages(self, took: float) -> dict[str, float]:
        """The seconds of each stage; 0 in a stage that took no time."""
        opening = took if self._opened_s is None else self._opened_s
        stages = {"queue": self._waited_s, "create_session": opening}
        if self._context is not None:
            stages |= self._context.tally.stages()
        if self._verifying_s is not None:
            stages["verify"] = took - self._verifying_s
        return stages
