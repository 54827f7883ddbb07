"""The agent's context: makes the model calls, tool calls and turns of one rollout.

The context sends an event for each model call, with only the new items and tokens, and keeps the
conversations (conversation.py). environment_calls.py does the same for the environment's part.
Errors of peers arrive as StepFailed; a limit of the policy that forbids a model call, as
StopRollout.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.environment import SessionClient
from gymmesh_agent.environment_calls import AttemptEnvironment, ToolAnswer, TurnAnswer
from gymmesh_agent.events import EventStream
from gymmesh_agent.failures import FailureStage, StepFailed
from gymmesh_agent.gateway.gateway import Gateway, SideCallRule
from gymmesh_agent.gateway.server import GatewayServer
from gymmesh_agent.loop import Completion, ContextExceeded, StopRollout
from gymmesh_agent.media import AttemptMedia
from gymmesh_agent.model import (
    Continuations,
    ConversationTree,
    GatewayCall,
    ItemSequence,
    ModelCall,
    ModelClient,
    ModelRequest,
    ModelServices,
    ScoredChoice,
    WeightsAge,
    chosen_answer,
    read_answer,
    read_scores,
)
from gymmesh_agent.plan import AttemptId, RolloutClock, RolloutPlan, add_items
from gymmesh_agent.sandboxes import AttemptSandboxes
from gymmesh_agent.tally import AttemptTally
from gymmesh_agent.telemetry import model_span, record_call, us_since
from gymmesh_responses import dumps
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox_access import RolloutAgent


class RolloutContext:
    """One rollout, as its agent sees it.

    Args:
        plan: the plan, with the session's tools.
        session: the open session.

    Attributes:
        options: the options of the request, unchanged.
        limits: the limits in force: the request's if it sets them, otherwise the configuration's.
        params: the parameters of policy calls, including the session's tools, without input.
        items: the first items of every conversation.
        multi_turn: whether `next_turn` may be called.
        sandboxes: the sandboxes to work in, by role: those that the session lends, and the agent's
            own.
        tally: the counts so far.
        last_call: the last answered call of any actor, except side calls; None if there is none.
    """

    def __init__(
        self,
        agent: str,
        agent_instance_id: str,
        attempt: AttemptId,
        plan: RolloutPlan,
        session: SessionClient,
        models: ModelServices,
        gateway: GatewayServer,
        events: EventStream,
        media: AttemptMedia,
        clock: RolloutClock,
        sandboxes: AttemptSandboxes,
    ) -> None:
        self.options = plan.options
        self.limits = plan.limits
        self.params = plan.params
        self.items: ItemSequence = (*plan.items, *session.opened.items)
        self.multi_turn = session.opened.multi_turn
        self.sandboxes = sandboxes
        self.tally = AttemptTally()
        self.last_call: ModelCall | None = None
        self._agent = agent
        self._agent_instance_id = agent_instance_id
        self._gateway = gateway
        self._attempt = attempt
        self._model_names = plan.models
        self._session = session
        self._events = events
        self._media = media
        self._clock = clock
        self._conversations = ConversationTree(self.items)
        self._environment_calls = AttemptEnvironment(
            agent,
            attempt.name,
            plan.params,
            session,
            self._conversations,
            events,
            media,
            sandboxes,
            self.tally,
        )
        self._continuations = Continuations(attempt.name, self._conversations, plan)
        self._models = ModelClient(
            models, attempt, plan, self._continuations, self.tally, clock, events
        )
        self._last: dict[str, str] = {}  # by actor: its last answered call
        self._learning = ""  # the model service of the last call to learn from
        self._calls = 0
        self._steps = 0
        self._side_calls = 0
        self._weights = WeightsAge(plan.max_staleness)
        self._open = True

    @property
    def counts(self) -> rollout_pb2.Counts:
        """The counts so far, as the contract's message."""
        return self.tally.counts()

    @property
    def turn_rewards(self) -> Sequence[float]:
        """The rewards of the environment's turns and of tool calls, in the order of arrival."""
        return self._environment_calls.rewards

    @property
    def weights_lag(self) -> int | None:
        """The number of versions between the oldest and the newest weights of the answers; None:
        unknown.
        """
        return self._weights.lag

    @property
    def name(self) -> str:
        """The attempt's name, `<rollout_id>/<attempt>`."""
        return self._attempt.name

    @property
    def attempt(self) -> int:
        """The attempt's number, from 1."""
        return self._attempt.attempt

    def remaining(self) -> float:
        """Seconds until the attempt is stopped."""
        return self._clock.remaining()

    async def call_model(
        self,
        items: ItemSequence = (),
        *,
        role: str = "policy",
        actor: str = "",
        parent: ModelCall | Literal["start"] | None = None,
        detached: bool = False,
        trainable: bool | None = None,
        params: Mapping[str, Any] | None = None,
        captured: GatewayCall | None = None,
    ) -> ModelCall:
        """Ask a model for one answer, given the conversation so far and then `items`.

        Args:
            items: new items that are not from a tool or turn (a critic's remarks, a prompt).
            role: the role of the model; the options or the configuration name the role's service.
            actor: the actor that calls; empty for the root agent, whose conversation is judged.
            parent: the call to continue. None: the actor's own last call, or the attempt's first
                items if the actor has made no call. "start": the attempt's first items.
            detached: begin a new conversation with only `items`. `parent` then only says which call
                led to it.
            trainable: whether to learn from the answer. None: if the role is `policy`.
            params: Responses parameters for this call only. For the role `policy`, they override
                the rollout's parameters. Other roles have no other parameters, because the task's
                parameters and tools are meant for the policy.
            captured: what a gateway knows of a program's call, including all parameters; None: the
                agent makes the call itself. A side call is no actor's last call. It is a step only
                if there were more side calls than `max_steps`. Every other captured call is a step,
                of any actor.

        Raises:
            StopRollout: a limit of the policy is reached. It is ContextExceeded if the conversation
                of a trainable call does not fit the model.
            StepFailed: the model service failed.
        """
        self._check_open()
        event = rollout_pb2.RolloutEvent()
        completed = event.model_call_completed
        if captured is not None:
            captured.describe(completed)
        completed.call_id = self._count_call(is_step=self._is_step(actor, captured))
        completed.parent_call_id = self._continued(parent, actor, detached)
        completed.actor = actor
        completed.model = self._model_names.get(role) or role
        completed.trainable = role == "policy" if trainable is None else trainable
        completed.detached = detached
        request = self._continuations.request(
            completed, role, params, items, None if captured is None else captured.params
        )
        with model_span(request.model, role) as span:
            began = time.monotonic_ns()
            try:
                reply = await self._models.ask(request)
                call = read_answer(reply, request.call_id, actor)
            except MeshError as error:
                raise _model_failed(error, request, completed.trainable) from error
            finally:
                took_us = us_since(began)
                self.tally.model_us += took_us
            problem = self._record(request, items, reply, call, completed, took_us)
            await self._events.emit(event)
            if problem is not None:
                raise StepFailed(problem, FailureStage.MODEL, request.model, request.call_id)
            record_call(span, call)
            return call

    @property
    def choices(self) -> Sequence[str]:
        """The answers from which the policy has to choose; empty: the task is open, or the
        agent's class does not set `scores`.
        """
        return self._session.opened.choices

    async def choose(self, pick: Callable[[Sequence[ScoredChoice]], int]) -> ModelCall:
        """Let the policy score `choices` as the answer to the conversation so far, and answer with
        one of them. Nothing is sampled. The answer is not trainable, and its event has all scores.

        Args:
            pick: returns the index of the answer among the scored choices.

        Raises:
            StopRollout, StepFailed: as `call_model`.
        """
        self._check_open()
        texts = self.choices
        event = rollout_pb2.RolloutEvent()
        completed = event.model_call_completed
        completed.call_id = self._count_call(is_step=True)
        completed.parent_call_id = self._continued(None, "", False)
        completed.model = self._model_names.get("policy") or "policy"
        request = self._continuations.request(completed, "policy", None, ())
        with model_span(request.model, "policy") as span:
            began = time.monotonic_ns()
            try:
                scores = await self._models.score(request, texts)
                completed.choices.extend(read_scores(scores, texts))
            except MeshError as error:
                raise _model_failed(error, request, trainable=True) from error
            finally:
                took_us = us_since(began)
                self.tally.model_us += took_us
            reply = chosen_answer(scores, request.call_id, texts[pick(completed.choices)])
            call = read_answer(reply, request.call_id)
            self._record(request, (), reply, call, completed, took_us)
            await self._events.emit(event)
            record_call(span, call)
            return call

    def gateway(
        self, program: str = "", *, tools: bool = False, side_calls: Sequence[SideCallRule] = ()
    ) -> Gateway:
        """A model endpoint for programs, whose calls become the policy's calls of this rollout:
        `async with context.gateway() as gateway:`, and then `gateway.url` and `gateway.key`.

        Args:
            program: the name of a known program, which decides how its calls are read; empty:
                recognise the program by its requests, if possible.
            tools: also offer the environment's tools, over MCP at the gateway's `/mcp`, under the
                same key.
            side_calls: rules for the program's side calls, which are checked before those of the
                known program.
        """
        agent = RolloutAgent(self._agent, self._agent_instance_id)
        offered = self.params.tools if tools else ()
        return Gateway(self._gateway, self, self._attempt, agent, program, offered, side_calls)

    async def call_tool(self, name: str, arguments: bytes) -> resource_pb2.CallToolResponse:
        """Call a tool of the environment for a program. The call has no event: the program shows
        the answer to the policy, and the program's next request records call and answer.

        Raises:
            StepFailed: the call could not be carried out.
        """
        self._check_open()
        return await self._environment_calls.call_for_program(name, arguments)

    async def call_tools(self, call: ModelCall) -> list[ToolAnswer]:
        """Run all function calls of an answer concurrently, and return the answers in the order of
        the calls. If the model made a mistake in a call, the call gets an answer that says so.

        Raises:
            StepFailed: a call could not be carried out; the others are cancelled.
        """
        self._check_open()
        return await self._environment_calls.call_tools(call)

    async def next_turn(self, call: ModelCall | None = None) -> TurnAnswer:
        """Let the environment take its turn, after `call` (None: the root agent's last call).

        Raises:
            StepFailed: the environment failed, or takes no turns.
        """
        self._check_open()
        after = call.call_id if call is not None else self._last.get("", "")
        return await self._environment_calls.next_turn(after)

    @property
    def environment_plays(self) -> bool:
        """Whether the environment can play the episode itself."""
        return self._session.environment.plays

    @property
    def environment(self) -> str:
        """The environment's name."""
        return self._session.name

    @property
    def environment_version(self) -> str:
        """The environment's version."""
        return self._session.version

    async def play(self, gateway: Gateway, model: str, timeout: float) -> None:
        """Let the environment play the episode itself, with the model behind the gateway.

        Args:
            gateway: this rollout's gateway, entered.
            model: the model name that the environment uses.
            timeout: seconds after which the call is abandoned.

        Raises:
            StepFailed: the environment failed, or can't play episodes.
            MeshError: FIELD_INVALID, if the environment can't reach the gateway.
        """
        self._check_open()
        await self._environment_calls.play(gateway, model, timeout)

    async def annotate(self, key: str, value: Any, call: ModelCall | None = None) -> None:
        """Store a JSON value with the rollout, under `<agent>.<key>`.

        Raises:
            CodecError: the value is not JSON.
        """
        self._check_open()
        note = rollout_pb2.Annotation(
            key=f"{self._agent}.{key}",
            value_json=dumps(value),
            model_call_id=call.call_id if call is not None else "",
        )
        await self._events.emit(rollout_pb2.RolloutEvent(annotation=note, ignorable=True))

    async def program_ended(self, ended: rollout_pb2.ProgramEnded) -> None:
        """Record how the program that ran as the agent ended."""
        self._check_open()
        await self._events.emit(rollout_pb2.RolloutEvent(program_ended=ended, ignorable=True))

    async def check_staleness(self) -> None:
        """Check the rollout against `max_staleness`, with the current weights.

        Raises:
            StepFailed: WEIGHTS_STALE.
        """
        if not self._weights.matters:
            return
        model = self._learning
        version = await self._models.weights_version(model)
        if version is None:
            return
        try:
            self._weights.now(version)
        except MeshError as error:
            raise StepFailed(error, FailureStage.MODEL, model) from error

    def transcript(self) -> list[responses_pb2.Item]:
        """Everything after the first items in the conversation that is judged: the conversation
        of the root agent's last call or, if the root agent made no call, of the last call of
        all.
        """
        last = self._last.get("")
        if not last and self.last_call is not None:
            last = self.last_call.call_id
        return self._conversations.transcript(last) if last else []

    def close(self) -> None:
        """The agent has returned: no step may follow."""
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise RuntimeError("the rollout's agent has returned, so the RolloutContext is closed")
        self._events.check()

    def _is_step(self, actor: str, captured: GatewayCall | None) -> bool:
        """Whether a call that is made now counts as a step."""
        if captured is None:
            return not actor
        # A program may begin a new conversation, and so an actor, with every call.
        if not captured.side_call:
            return True
        # What a side call is, the program's own words say: as many as there are steps are free.
        self._side_calls += 1
        most = self.limits.max_steps
        return most is not None and self._side_calls > most

    def _count_call(self, *, is_step: bool) -> str:
        """The id of the model call that is made now. Raises StopRollout at a limit.

        Calls of the root agent and of a program are steps. The output tokens of all calls count.
        """
        steps = self._steps if is_step else 0
        limit = self.limits.reached(steps, self.tally.output_tokens)
        if limit is not None:
            raise StopRollout(Completion(limit))
        self._calls += 1
        if is_step:
            self._steps += 1
        return f"c{self._calls}"

    def _continued(
        self, parent: ModelCall | Literal["start"] | None, actor: str, detached: bool
    ) -> str:
        """The id of the call that a new call continues; empty if there is none."""
        if parent is None:
            return "" if detached else self._last.get(actor, "")
        return "" if parent == "start" else parent.call_id

    def _record(
        self,
        request: ModelRequest,
        items: ItemSequence,
        reply: model_pb2.CreateResponseResponse,
        call: ModelCall,
        completed: rollout_pb2.ModelCallCompleted,
        took_us: int,
    ) -> MeshError | None:
        """Record an answer, and fill in its event.

        Returns why the rollout cannot continue after it: TOKENS_DIVERGED or WEIGHTS_STALE.
        """
        capture, problem = self._continuations.answered(request, reply, call)
        call_id, above, tally = request.call_id, completed.parent_call_id, self.tally
        self._conversations.add_call(call_id, above, completed.detached, items, call.output)
        if not completed.side_call:
            self._last[call.actor] = call_id
            self.last_call = call
        queue_us = reply.queue_us
        tally.model_calls += 1
        tally.model_queue_us += queue_us
        tally.input_tokens += call.input_tokens
        tally.output_tokens += call.output_tokens
        if items:
            add_items(completed.context_items, self._media.all_named(items))
        completed.response.CopyFrom(call.response)
        timings = completed.timings
        timings.total_us = took_us
        if queue_us:
            timings.queue_us = queue_us
        if reply.endpoint_us:
            timings.endpoint_us = reply.endpoint_us
        if reply.retries:
            timings.retry_us = reply.retry_us
            completed.retries.extend(reply.retries)
        if capture is not None:
            completed.tokens.CopyFrom(capture)
        if problem is None and completed.trainable:
            self._learning = request.model
            try:
                self._weights.add(reply.tokens.weights)
            except MeshError as error:
                return error
        return problem


def _model_failed(
    error: MeshError, request: ModelRequest, trainable: bool
) -> StepFailed | ContextExceeded:
    """The error of a model call that was not answered. If the context is full and the call is
    trainable, the rollout completes.
    """
    if trainable and error.reason == errors_pb2.ERROR_REASON_MODEL_CONTEXT_EXCEEDED:
        return ContextExceeded()
    return StepFailed(error, FailureStage.MODEL, request.model, request.call_id)
