"""What an agent works with: the model calls, tool calls and turns of one rollout.

The scope sends each step as an event while it happens, each event with no more than what is
new, and keeps the conversations (conversation.py). Errors of peers arrive as StepFailed; a limit
of the policy's that forbids a model call, as StopRollout.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.agent import Completion, ContextExceeded, StopRollout
from gymmesh_agent.answer import ModelCall as ModelCall  # for agents, with the scope
from gymmesh_agent.answer import read_answer
from gymmesh_agent.attempt_id import AttemptId
from gymmesh_agent.clock import RolloutClock
from gymmesh_agent.continuity import Continuity
from gymmesh_agent.conversation import Conversations
from gymmesh_agent.events import EventStream
from gymmesh_agent.failures import Stage, StepFailed
from gymmesh_agent.model_caller import ModelCaller, Models
from gymmesh_agent.params import add_items
from gymmesh_agent.session import EnvironmentSession, violated
from gymmesh_agent.tally import Tally
from gymmesh_agent.terms import Course, Terms
from gymmesh_agent.weights import WeightsAge
from gymmesh_responses import dumps
from gymmesh_runtime.errors import MeshError

# Methods of the class: a message looks through the names of its fields to find its own.
_tool_has = resource_pb2.CallToolResponse.HasField
_copy_response = responses_pb2.Response.CopyFrom

# For a call that could not be sent: the contract wants a name.
_NAMELESS = resource_pb2.CallToolResponse(
    text=b"This call names no tool. Call again with the name of a tool that you were given.",
    outcome=rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL,
)
# The ids of an attempt's first model calls: to write a number takes as long as to send a field.
_CALL_IDS = tuple(f"c{number}" for number in range(33))
# The most tool calls of one answer that run side by side; the others wait for a place.
_SIDE_BY_SIDE = 32

Items = Sequence[responses_pb2.Item]


class ToolAnswer(msgspec.Struct, eq=False):
    """A tool call that was answered.

    Attributes:
        item: the function_call_output.
        outcome: how it was answered; whatever it is, the model is shown the item.
        done: whether it ended the environment's episode.
    """

    item: responses_pb2.Item
    outcome: rollout_pb2.ToolOutcome.ValueType
    done: bool


@dataclass(frozen=True, slots=True)
class TurnAnswer:
    """The environment's turn.

    Attributes:
        items: what it says.
        reward: the turn's reward, where there is one.
        done: whether the episode is over.
    """

    items: Items
    reward: float | None
    done: bool


class RolloutScope:
    """One rollout, as its agent sees it.

    Attributes:
        options: the options of the request, as they came.
        limits: the limits in force: the request's, else the configuration's.
        params: the parameters of policy calls, session tools included, without input.
        items: the items that every conversation starts from.
        multi_turn: whether `next_turn` may be called.
        tally: what was done so far.
        turn_rewards: the rewards of the environment's turns, in order.
    """

    __slots__ = (
        "_agent",
        "_attempt",
        "_calls",
        "_clock",
        "_continuity",
        "_conversations",
        "_events",
        "_last",
        "_latest",
        "_learning",
        "_models",
        "_names",
        "_open",
        "_root_calls",
        "_session",
        "_turns",
        "_weights",
        "items",
        "limits",
        "multi_turn",
        "options",
        "params",
        "tally",
        "turn_rewards",
    )

    def __init__(
        self,
        agent: str,
        who: AttemptId,
        terms: Terms,
        course: Course,
        session_items: Items,
        models: Models,
        session: EnvironmentSession,
        events: EventStream,
        clock: RolloutClock,
    ) -> None:
        self.options = terms.options
        self.limits = limits = terms.limits
        self.params = course.params
        items = course.items
        if session_items:
            items = (*items, *session_items)
        self.items = items
        self.multi_turn = session.offer.multi_turn
        self.tally = tally = Tally()
        self.turn_rewards: list[float] = []
        self._agent = agent
        self._attempt = who.name
        self._names = terms.models
        self._models = ModelCaller(
            models,
            who,
            course,
            limits.max_total_output_tokens,
            tally,
            clock,
            events if terms.deltas else None,
        )
        self._session = session
        self._events = events
        self._clock = clock
        self._conversations = Conversations(items)
        self._continuity = Continuity(who.name, self._conversations, terms)
        self._last: dict[str, str] = {}  # by actor: its last answered call
        self._latest = ""  # the last answered call of all
        self._learning = ""  # the model service of the last call to learn from
        self._calls = 0
        self._root_calls = 0
        self._turns = 0
        self._weights = WeightsAge(terms.max_staleness)
        self._open = True

    @property
    def counts(self) -> rollout_pb2.Counts:
        """What was done so far, as the contract tells it."""
        counts = rollout_pb2.Counts()
        self.tally.write(counts)
        return counts

    @property
    def weights_lag(self) -> int | None:
        """How many versions apart the weights are that were met; None where none is known."""
        return self._weights.lag

    def remaining(self) -> float:
        """Seconds until the attempt is stopped."""
        return self._clock.remaining()

    async def call_model(
        self,
        items: Items = (),
        *,
        role: str = "policy",
        actor: str = "",
        parent: ModelCall | Literal["start"] | None = None,
        detached: bool = False,
        trainable: bool | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> ModelCall:
        """Ask a model for one answer, given the conversation so far and then `items`.

        Args:
            items: new items that no tool or turn brought (a critic's remarks, a prompt).
            role: which model; the options or the configuration name its service.
            actor: who asks; empty for the root agent, whose conversation is the one judged.
            parent: the call to continue. None: the actor's own last call, or the attempt's first
                items when it has none. "start": those items.
            detached: begin anew with `items` alone; `parent` then only says what led to it.
            trainable: whether to learn from the answer. None: when the role is `policy`.
            params: Responses parameters that this call alone changes. They go over the
                rollout's for the role `policy`; other roles start from none, since the task's
                parameters and tools are meant for the policy.

        Raises:
            StopRollout: a limit of the policy's is reached; ContextExceeded when the
                conversation of a trainable call does not fit the model.
            StepFailed: the model service failed.
        """
        if not self._open:
            raise _closed()
        root = not actor
        tally = self.tally
        # Steps are the root agent's alone, output tokens everyone's.
        steps = self._root_calls if root else 0
        limit = self.limits.reached(steps, tally.output_tokens)
        if limit is not None:
            raise StopRollout(Completion(limit))
        self._calls = number = self._calls + 1
        self._root_calls += root
        call_id = _CALL_IDS[number] if number < len(_CALL_IDS) else f"c{number}"
        if parent is None:
            above = "" if detached else self._last.get(actor, "")
        else:
            above = "" if parent == "start" else parent.call_id
        base = self._conversations.base(above, detached)
        learn = role == "policy" if trainable is None else trainable
        model = self._names.get(role) or role
        asking = self._continuity.asking(
            call_id,
            model,
            role,
            params,
            [*base, *items] if items else base,
            "" if detached else above,
            len(base),
        )
        began = time.monotonic_ns()
        try:
            try:
                reply = await self._models.ask(asking)
            finally:
                took_us = (time.monotonic_ns() - began) // 1000
                tally.model_us += took_us
            call = read_answer(reply, call_id, actor)
        except MeshError as error:
            if learn and error.reason == errors_pb2.ERROR_REASON_MODEL_CONTEXT_EXCEEDED:
                raise ContextExceeded from error
            raise StepFailed(error, Stage.MODEL, model, call_id) from error
        capture, breach = self._continuity.answered(asking, reply, call)
        self._conversations.add_call(call_id, above, detached, items, call.output)
        self._last[actor] = self._latest = call_id
        tally.model_calls += 1
        tally.input_tokens += call.input_tokens
        tally.output_tokens += call.output_tokens
        event = rollout_pb2.RolloutEvent()
        done = event.model_call_completed
        done.call_id = call_id
        done.model = model
        done.trainable = learn
        # Most calls have none of these, and an empty value takes as long to set as any.
        if above:
            done.parent_call_id = above
        if actor:
            done.actor = actor
        if detached:
            done.detached = detached
        if items:
            add_items(done.context_items, items)
        _copy_response(done.response, call.response)
        timings = done.timings
        queue_us = reply.queue_us
        if queue_us:
            timings.queue_us = queue_us
            tally.model_queue_us += queue_us
        timings.total_us = took_us
        if capture is not None:
            done.tokens.CopyFrom(capture)
        room = self._events.put(event)
        if room is not None:
            await room
        if breach is not None:
            raise StepFailed(breach, Stage.MODEL, model, call_id)
        if learn:
            self._learning = model
            try:
                self._weights.add(reply.tokens.weights)
            except MeshError as error:
                raise StepFailed(error, Stage.MODEL, model, call_id) from error
        return call

    def call_tools(self, call: ModelCall) -> Coroutine[Any, Any, list[ToolAnswer]]:
        """Run all function calls of an answer side by side; the answers in the order of the
        calls. What the model did wrong is an answer, too.

        Raises:
            StepFailed: a call could not be carried out; the others are cancelled.
        """
        if not self._open:
            raise _closed()
        calls = call.function_calls
        if len(calls) == 1:
            return self._call_tool(call, 0, calls[0])
        return _side_by_side([self._call_tool(call, place, one) for place, one in enumerate(calls)])

    async def next_turn(self, call: ModelCall | None = None) -> TurnAnswer:
        """Give the environment its turn, after `call` (None: the root agent's last one).

        Raises:
            StepFailed: the environment failed, or takes no turns.
        """
        if not self._open:
            raise _closed()
        after = call.call_id if call is not None else self._last.get("", "")
        if not after or not self.multi_turn:
            raise self._own_fault(
                "next_turn needs an environment that takes turns, and a model call before it"
            )
        self._turns += 1
        turn = self._turns
        request = resource_pb2.NextTurnRequest(
            new_items=self._conversations.since_turn(after), request_id=f"{self._attempt}/t{turn}"
        )
        began = time.monotonic_ns()
        try:
            reply = await self._session.next_turn(request)
        finally:
            self.tally.turn_us += (time.monotonic_ns() - began) // 1000
        self.tally.turns += 1
        reward = reply.reward if reply.HasField("reward") else None
        if reward is not None:
            self.turn_rewards.append(reward)
        self._conversations.add_turn(after, reply.items)
        event = rollout_pb2.TurnCompleted(
            turn=turn,
            model_call_id=after,
            items=reply.items,
            reward=reward,
            done=reply.done,
            model_usage=reply.model_usage,
        )
        await self._events.emit(rollout_pb2.RolloutEvent(turn_completed=event))
        return TurnAnswer(tuple(reply.items), reward, reply.done)

    async def annotate(self, key: str, value: Any, call: ModelCall | None = None) -> None:
        """Keep a JSON value with the rollout, under `<agent>.<key>`.

        Raises:
            CodecError: the value is not JSON.
        """
        if not self._open:
            raise _closed()
        note = rollout_pb2.Annotation(
            key=f"{self._agent}.{key}",
            value_json=dumps(value),
            model_call_id=call.call_id if call is not None else "",
        )
        await self._events.emit(rollout_pb2.RolloutEvent(annotation=note, ignorable=True))

    async def check_staleness(self) -> None:
        """Hold the rollout to `max_staleness` against the weights as they are now.

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
            raise StepFailed(error, Stage.MODEL, model) from error

    def transcript(self) -> list[responses_pb2.Item]:
        """Everything after the first items in the conversation that is judged: the one of the
        root agent's last call, or of the last call at all when the root agent made none.
        """
        last = self._last.get("") or self._latest
        return self._conversations.transcript(last) if last else []

    def close(self) -> None:
        """No step may follow: the agent has returned."""
        self._open = False

    async def _call_tool(
        self, call: ModelCall, place: int, function: responses_pb2.FunctionCall
    ) -> list[ToolAnswer]:
        """Run one of the calls: the list of its answer."""
        began = time.monotonic_ns()
        call_id, name = function.call_id, function.name
        if name:
            event = rollout_pb2.RolloutEvent()
            started = event.tool_call_started
            started.call_id = call_id
            started.name = name
            started.model_call_id = call.call_id
            if call.actor:
                started.actor = call.actor
            room = self._events.put(event)
            if room is not None:
                await room
            request_id = f"{self._attempt}/{call.call_id}/{call_id}"
            session = self._session
            try:
                reply = await session.call_tool(name, function.arguments, call_id, request_id)
                outcome = reply.outcome
                if outcome == rollout_pb2.TOOL_OUTCOME_UNSPECIFIED:
                    raise violated("outcome", f"the answer of tool '{name}' has no outcome")
            except MeshError as error:
                reply = session.tool_failed(error, name, call_id)
                outcome = reply.outcome
            finally:
                self.tally.tool_us += (time.monotonic_ns() - began) // 1000
        else:
            reply, outcome = _NAMELESS, _NAMELESS.outcome
        event = rollout_pb2.RolloutEvent()
        done = event.tool_call_completed
        done.call_id = call_id
        done.name = name
        done.model_call_id = call.call_id
        if call.actor:
            done.actor = call.actor
        # Shared by the event and the conversation: a copy would be as dear as the rest.
        item = done.output
        output = item.function_call_output
        output.call_id = call_id
        if _tool_has(reply, "parts"):
            output.parts.CopyFrom(reply.parts)
        else:
            output.text = reply.text
        done.outcome = outcome
        done.timings.total_us = (time.monotonic_ns() - began) // 1000
        self._conversations.add_tool_output(call.call_id, place, item)
        self.tally.tool_calls += 1
        room = self._events.put(event)
        if room is not None:
            await room
        return [ToolAnswer(item, outcome, reply.done)]

    def _own_fault(self, message: str) -> StepFailed:
        error = MeshError(
            errors_pb2.ERROR_REASON_AGENT_FAULT, message, metadata={"agent": self._agent}
        )
        return StepFailed(error, Stage.AGENT, self._agent)


def _closed() -> RuntimeError:
    return RuntimeError("the rollout's agent has returned; its scope is closed")


async def _side_by_side(
    steps: Sequence[Coroutine[Any, Any, list[ToolAnswer]]],
) -> list[ToolAnswer]:
    places = asyncio.Semaphore(_SIDE_BY_SIDE)

    async def run(step: Coroutine[Any, Any, list[ToolAnswer]]) -> list[ToolAnswer]:
        async with places:
            return await step

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(step)) for step in steps]
    except BaseExceptionGroup as errors:
        # The first is the cause; the others are mostly what it cancelled.
        raise errors.exceptions[0] from None
    finally:
        for step in steps:
            step.close()  # those that never got a place; the others are over
    return [answer for task in tasks for answer in task.result()]
