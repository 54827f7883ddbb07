"""The environment's part of one rollout: its tool calls, its turns, and episodes that it plays.

context.py calls this after it has checked that the rollout is open. Each tool call of the agent and
each turn becomes an event. Errors of the environment are raised as StepFailed.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.environment import SessionClient
from gymmesh_agent.events import EventStream
from gymmesh_agent.failures import FailureStage, StepFailed
from gymmesh_agent.gateway.gateway import Gateway
from gymmesh_agent.media import AttemptMedia
from gymmesh_agent.model import ConversationTree, ItemSequence, ModelCall
from gymmesh_agent.plan import add_items
from gymmesh_agent.sandboxes import AttemptSandboxes
from gymmesh_agent.tally import AttemptTally
from gymmesh_agent.telemetry import record_tool, tool_span, turn_span, us_since
from gymmesh_runtime.errors import MeshError

# For a call that could not be sent: the contract wants a name.
_NAMELESS: Final = resource_pb2.CallToolResponse(
    text=b"This call names no tool. Call again with the name of a tool that you were given.",
    outcome=rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL,
)
# The most tool calls of one answer that run side by side; the others wait for a place.
_SIDE_BY_SIDE: Final = 32


class ToolAnswer(msgspec.Struct, frozen=True, eq=False):
    """A tool call that was answered.

    Attributes:
        item: the function_call_output.
        outcome: how the call was answered; the model is shown the item for any outcome.
        done: whether the call ended the environment's episode.
    """

    item: responses_pb2.Item
    outcome: rollout_pb2.ToolOutcome.ValueType
    done: bool


class TurnAnswer(msgspec.Struct, frozen=True):
    """The environment's turn.

    Attributes:
        items: the items of the turn.
        reward: the turn's reward, if it has one.
        done: whether the episode is over.
    """

    items: ItemSequence
    reward: float | None
    done: bool


class AttemptEnvironment:
    """The calls of one attempt to its environment.

    Args:
        agent: the agent's name.
        attempt: the attempt's name, with which request ids begin.
        params: the parameters of policy calls; spans describe the environment's tools from them.
        session: the open session.
        conversations: where outputs of tools and turns are added.

    Attributes:
        rewards: the rewards of turns and of tool calls, in the order of their answers.
    """

    def __init__(
        self,
        agent: str,
        attempt: str,
        params: responses_pb2.ResponseParams,
        session: SessionClient,
        conversations: ConversationTree,
        events: EventStream,
        media: AttemptMedia,
        sandboxes: AttemptSandboxes,
        tally: AttemptTally,
    ) -> None:
        self.rewards: list[float] = []
        self._agent = agent
        self._attempt = attempt
        self._params = params
        self._session = session
        self._conversations = conversations
        self._events = events
        self._media = media
        self._sandboxes = sandboxes
        self._tally = tally
        self._program_tool_calls = 0
        self._turns = 0

    async def call_for_program(self, name: str, arguments: bytes) -> resource_pb2.CallToolResponse:
        """Call a tool for a program. The call has no event: the program itself shows the answer
        to the policy. Raises StepFailed.
        """
        self._program_tool_calls += 1
        call_id = f"mcp{self._program_tool_calls}"
        reply = await self._ask(name, arguments, call_id, f"{self._attempt}/{call_id}")
        self._sandboxes.note_reply(reply)
        return reply

    async def call_tools(self, call: ModelCall) -> list[ToolAnswer]:
        """Run all function calls of an answer, and return the answers in the order of the calls.
        The calls run concurrently, except if the session's state depends on their order. Raises
        StepFailed, after the other calls were cancelled.
        """
        calls = call.function_calls
        if len(calls) == 1 or self._session.opened.tools_in_order:
            return [await self._call_tool(call, *one) for one in enumerate(calls)]
        places = asyncio.Semaphore(_SIDE_BY_SIDE)

        async def in_place(position: int, function: responses_pb2.FunctionCall) -> ToolAnswer:
            async with places:
                return await self._call_tool(call, position, function)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(in_place(*one)) for one in enumerate(calls)]
        except BaseExceptionGroup as errors:
            # The first is the cause; the others are mostly what it cancelled.
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def next_turn(self, after: str) -> TurnAnswer:
        """Let the environment take its turn after the model call `after`; empty: there was no call.

        Raises:
            StepFailed: the environment failed, or takes no turns.
        """
        with turn_span(self._session.name):
            self._check_takes_turns(after)
            self._turns += 1
            turn, began = self._turns, time.monotonic_ns()
            try:
                reply = await self._session.next_turn(
                    self._conversations.since_turn(after), f"{self._attempt}/t{turn}"
                )
            finally:
                self._tally.turn_us += us_since(began)
            self._tally.turns += 1
            reward = reply.reward if reply.HasField("reward") else None
            if reward is not None:
                self.rewards.append(reward)
            self._conversations.add_turn(after, reply.items)
            event = rollout_pb2.RolloutEvent()
            completed = event.turn_completed
            completed.turn, completed.model_call_id = turn, after
            add_items(completed.items, self._media.all_named(reply.items))
            if reward is not None:
                completed.reward = reward
            completed.done = reply.done
            completed.model_usage.extend(reply.model_usage)
            self._sandboxes.note_reply(reply)
            await self._events.emit(event)
            return TurnAnswer(tuple(reply.items), reward, reply.done)

    async def play(self, gateway: Gateway, model: str, timeout: float) -> None:
        """Let the environment play the episode itself; see RolloutContext.play."""
        endpoint = resource_pb2.ModelEndpoint(
            base_url=f"{gateway.url_for(self._session.name, self._session.address)}/v1",
            key=gateway.key,
            model=model,
        )
        self._sandboxes.note_reply(await self._session.play(endpoint, timeout))

    def _check_takes_turns(self, after: str) -> None:
        if after and self._session.opened.multi_turn:
            return
        error = MeshError(
            errors_pb2.ERROR_REASON_AGENT_FAULT,
            "`next_turn` needs an environment that takes turns, and an earlier model call",
            metadata={"agent": self._agent},
        )
        raise StepFailed(error, FailureStage.AGENT, self._agent)

    async def _ask(
        self, name: str, arguments: bytes, call_id: str, request_id: str
    ) -> resource_pb2.CallToolResponse:
        """A tool's answer. Its time and its reward are counted. Raises StepFailed."""
        began = time.monotonic_ns()
        try:
            reply = await self._session.call_tool(name, arguments, call_id, request_id)
        finally:
            self._tally.tool_us += us_since(began)
        if reply.HasField("reward"):
            self.rewards.append(reply.reward)
        return reply

    async def _call_tool(
        self, call: ModelCall, position: int, function: responses_pb2.FunctionCall
    ) -> ToolAnswer:
        name, call_id, began = function.name, function.call_id, time.monotonic_ns()
        with tool_span(name, self._params) as span:
            reply = _NAMELESS
            if name:
                started = rollout_pb2.RolloutEvent()
                about = started.tool_call_started
                about.call_id, about.name = call_id, name
                about.model_call_id, about.actor = call.call_id, call.actor
                await self._events.emit(started)
                request_id = f"{self._attempt}/{call.call_id}/{call_id}"
                reply = await self._ask(name, function.arguments, call_id, request_id)
            event = rollout_pb2.RolloutEvent()
            completed = event.tool_call_completed
            completed.call_id, completed.name = call_id, name
            completed.model_call_id, completed.actor = call.call_id, call.actor
            completed.outcome = reply.outcome
            item = self._write_output(completed, call_id, reply)
            if reply.HasField("reward"):
                completed.reward = reply.reward
            completed.timings.total_us = us_since(began)
            self._conversations.add_tool_output(call.call_id, position, item)
            self._tally.tool_calls += 1
            self._sandboxes.note_reply(reply)
            await self._events.emit(event)
            record_tool(span, reply.outcome)
            return ToolAnswer(item, reply.outcome, reply.done)

    def _write_output(
        self,
        completed: rollout_pb2.ToolCallCompleted,
        call_id: str,
        reply: resource_pb2.CallToolResponse,
    ) -> responses_pb2.Item:
        """Write a tool's output into its event, and return the item for the conversation."""
        if reply.HasField("parts"):
            item = responses_pb2.Item()
            output = item.function_call_output
            output.call_id = call_id
            output.parts.CopyFrom(reply.parts)
            # The event names the images that the conversation holds.
            completed.output.CopyFrom(self._media.named(item))
        else:
            # Shared by the event and the conversation; neither changes it.
            item = completed.output
            output = item.function_call_output
            output.call_id = call_id
            output.text = reply.text
        return item
