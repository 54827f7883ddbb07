"""The calls of one rollout's programs: placed in its tree of calls, answered, recorded.

A request is placed as soon as it is read. A repeat of a request that the program abandoned, or a
marked repeat, gets the answer of the first request, finished or still in progress. Any other
request becomes a model call. The call continues if the program disconnects, so that a retry finds
the answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.gateway.connections import RolloutConnections
from gymmesh_agent.gateway.dialects import SeenRequests
from gymmesh_agent.gateway.environment_tools import EnvironmentTools
from gymmesh_agent.gateway.request import (
    GatewayAnswer,
    GatewayRequest,
    Json,
    Refusal,
    RefusalKind,
)
from gymmesh_agent.gateway.tree import CallTree, NewCall, RepeatedCall
from gymmesh_agent.loop import ContextExceeded, StopRollout
from gymmesh_agent.model import GatewayCall, ItemSequence, ModelCall
from gymmesh_responses import CodecError, dumps_clean, params_from_json, params_to_dict
from gymmesh_runtime.errors import MeshError

_OVER: Final = Refusal(RefusalKind.STOP, "The rollout is over.")
_BUSY: Final = Refusal(
    RefusalKind.AGAIN,
    "Too many requests of this rollout wait for an answer. Send the request again later.",
)
_TOO_LONG: Final = Refusal(
    RefusalKind.CONTEXT_LENGTH,
    "The conversation exceeds the model's maximum context length. Shorten the conversation.",
)
# A program that does not shorten its conversation is stopped after so many refusals in a row.
_MOST_TOO_LONG: Final = 16
_BYTES_PER_TOKEN: Final = 4.0
_CLOSE_S: Final = 5.0
#: The key under which a rollout keeps what a program asks for beside the conversation.
_ASKED: Final = "gateway_request"
# What the run does not decide for a program: the conversation and the tools are the program's.
_THE_PROGRAMS: Final = ("input", "instructions", "tools", "model")

AnswerOrRefusal: TypeAlias = GatewayAnswer | Refusal


class PolicyCalls(Protocol):
    """What a session needs from a rollout: the part of RolloutContext that calls the policy."""

    params: responses_pb2.ResponseParams

    async def call_model(
        self,
        items: ItemSequence = (),
        *,
        actor: str = "",
        parent: ModelCall | Literal["start"] | None = None,
        detached: bool = False,
        trainable: bool | None = None,
        captured: GatewayCall | None = None,
    ) -> ModelCall:
        """See RolloutContext."""

    async def call_tool(self, name: str, arguments: bytes) -> resource_pb2.CallToolResponse:
        """See RolloutContext."""

    async def annotate(self, key: str, value: Any, call: ModelCall | None = None) -> None:
        """See RolloutContext."""


class PendingAnswer:
    """The answer to a request, available or awaited. Repeats of a request share it.

    Attributes:
        ticket: the call's number in the tree.
        reply: the answer, or why there is none. Shield it from a cancelled waiter.
        model_s: seconds that the model call took; 0 until it was answered.
    """

    def __init__(self, ticket: int) -> None:
        self.ticket = ticket
        self.reply: asyncio.Future[AnswerOrRefusal] = asyncio.get_running_loop().create_future()
        self.model_s = 0.0

    def settle(self, reply: AnswerOrRefusal) -> None:
        """Set the reply, unless it is already set."""
        if not self.reply.done():
            self.reply.set_result(reply)


class GatewaySession:
    """One rollout at the gateway.

    Args:
        key: the key that gives access.
        policy: makes the model calls.
        tree: the tree for the rollout's calls, empty.
        tag: the tag of the rollout's minted ids.
        most_calls: the maximum number of concurrent model calls.

    Attributes:
        connections: the connections that sent the key.
        reading: held while a long body of the rollout's programs is read.
        cause: why the rollout ended: StopRollout at a limit, or an error of the model service;
            None: the rollout may continue.
        stopped: set when there is a cause, or when the session was closed.
        seen: the cache of the programs' items, for reading further requests.
        tools: answers requests of MCP; None: the environment's tools are not offered.
    """

    def __init__(
        self, key: str, policy: PolicyCalls, tree: CallTree, tag: str, most_calls: int
    ) -> None:
        self.key = key
        self.connections = RolloutConnections()
        self.reading = asyncio.Lock()
        self.cause: Exception | None = None
        self.stopped = asyncio.Event()
        self.seen = SeenRequests()
        self.tools: EnvironmentTools | None = None
        self._policy = policy
        self._tree = tree
        self._tag = tag
        self._most_calls = most_calls
        self._run_params = _run_params(policy.params)
        self._pending: dict[int, PendingAnswer] = {}
        self._callers: dict[asyncio.BaseTransport, int] = {}  # with the tickets of their requests
        self._answered: dict[str, ModelCall] = {}
        self._tasks = set[asyncio.Task[Any]]()
        self._asked: dict[str, _AskedBeside] = {}  # by actor: what its last call asked for
        self._params_of = _AskedBeside(b"", ()), responses_pb2.ResponseParams()
        self._too_long = 0  # refusals in a row
        self._bytes_per_token = _BYTES_PER_TOKEN

    @property
    def context_exceeded(self) -> bool:
        """Whether the last call did not fit the model's context."""
        return self._too_long > 0

    @property
    def is_awaited(self) -> bool:
        """Whether a model call is in progress."""
        return any(not pending.reply.done() for pending in self._pending.values())

    def submit(
        self, request: GatewayRequest, body_bytes: int, caller: asyncio.BaseTransport
    ) -> PendingAnswer | Refusal:
        """Place a request and answer it. If the result is not a refusal, the caller must call
        `ended`.

        Args:
            body_bytes: the length of the request's body.
            caller: the connection that waits for the answer; it has one request at a time.
        """
        if self.stopped.is_set():
            return _OVER
        if len(self._tasks) >= self._most_calls:
            return _BUSY
        self._see_who_hung_up()
        placement = self._tree.place(request)
        self._callers[caller] = placement.ticket
        if isinstance(placement, RepeatedCall):
            return self._pending[placement.ticket]
        pending = self._pending[placement.ticket] = PendingAnswer(placement.ticket)
        task = asyncio.create_task(self._answer(pending, placement, request, body_bytes))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return pending

    async def use_tools(self, tools: EnvironmentTools, body: bytes) -> bytes | None:
        """Answer a request of MCP; None: the request expects no answer. The work ends with the
        session.
        """
        if self.stopped.is_set():
            return None
        task = asyncio.create_task(tools.answer(body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await task

    def ended(self, caller: asyncio.BaseTransport, *, delivered: bool) -> None:
        """The request of a connection was answered, or the program disconnected. May be called
        twice.

        Args:
            delivered: whether the last byte of the answer was written. If so, the same request is a
                new request; if not, it is a retry.
        """
        ticket = self._callers.pop(caller, None)
        if ticket is None:
            return
        if delivered:
            self._tree.delivered(ticket)
        else:
            self._tree.given_up(ticket)

    def _see_who_hung_up(self) -> None:
        """Checks which programs have disconnected, because a retry may be read before the end of
        the first connection was noticed.
        """
        for caller in [one for one in self._callers if one.is_closing()]:
            self.ended(caller, delivered=False)

    def count_tokens(self, body_bytes: int) -> int:
        """The approximate number of tokens of a request, estimated from earlier answers."""
        return round(body_bytes / self._bytes_per_token)

    def stop(self, cause: Exception) -> None:
        """Answer no further request. A failure ends the calls in progress; a limit lets them
        end.
        """
        if self.stopped.is_set():
            return
        self.cause = cause
        self.stopped.set()
        if not isinstance(cause, StopRollout):
            self._cancel()

    async def close(self) -> None:
        """End all calls in bounded time; may be called twice."""
        self.stopped.set()
        self._cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_S)

    def _cancel(self) -> None:
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()

    async def _answer(
        self, pending: PendingAnswer, placed: NewCall, request: GatewayRequest, body_bytes: int
    ) -> None:
        """Make the model call of a request, and set its answer. Raises nothing."""
        try:
            pending.settle(await self._call(pending, placed, request, body_bytes))
        except ContextExceeded:
            pending.settle(self._exceeded(placed))
        except StopRollout as stop:
            self.stop(stop)
        except CodecError as error:
            pending.settle(
                Refusal(RefusalKind.INVALID, f"The gateway cannot forward the request: {error}")
            )
        except MeshError as error:
            if error.reason == errors_pb2.ERROR_REASON_MODEL_CONTEXT_EXCEEDED:
                pending.settle(self._exceeded(placed))
            else:
                self.stop(error)
        except Exception as error:
            self.stop(error)
        finally:
            if not (pending.reply.done() and isinstance(pending.reply.result(), GatewayAnswer)):
                self._tree.failed(pending.ticket)
                del self._pending[pending.ticket]
            pending.settle(_OVER)

    async def _call(
        self, pending: PendingAnswer, placed: NewCall, request: GatewayRequest, body_bytes: int
    ) -> GatewayAnswer:
        params, replaced = self._params(request)
        began = time.monotonic()
        call = await self._policy.call_model(
            placed.items,
            actor=placed.actor,
            parent=self._answered[placed.parent] if placed.parent else "start",
            detached=placed.detached,
            trainable=placed.trainable,
            captured=GatewayCall(
                params=params,
                link=placed.link,
                side_call=placed.side_call,
                fork=placed.fork,
                replaced_params=replaced,
                left_out=request.left_out,
            ),
        )
        pending.model_s = time.monotonic() - began
        self._too_long = 0
        if call.input_tokens:
            self._bytes_per_token = max(1.0, body_bytes / call.input_tokens)
        self._answered[call.call_id] = call
        self._tree.answered(placed.ticket, call.call_id, call.output)
        await self._note(request, call)
        return GatewayAnswer(
            tag=self._tag,
            call_id=call.call_id,
            response=call.response,
            created=int(time.time()),
        )

    async def _note(self, request: GatewayRequest, call: ModelCall) -> None:
        """Record a call's tools and other settings, if they differ from those of its actor's
        previous call.
        """
        noted = {
            "model": request.model,
            "dialect": request.dialect,
            "program": request.hints.program,
            "instructions": request.instructions or None,
            "params": request.params,
            "left_out": request.left_out,
        }
        asked = _AskedBeside(dumps_clean(noted), request.tools)
        if not asked.is_same(self._asked.get(call.actor)):
            self._asked[call.actor] = asked
            await self._policy.annotate(_ASKED, {**noted, "tools": request.tools}, call)

    def _exceeded(self, placed: NewCall) -> Refusal:
        if not placed.side_call:
            self._too_long += 1
            if self._too_long >= _MOST_TOO_LONG:
                self.stop(ContextExceeded())
        return _TOO_LONG

    def _params(
        self, request: GatewayRequest
    ) -> tuple[responses_pb2.ResponseParams, dict[str, Any]]:
        """A call's parameters, where the run's override the program's, and the parameters that
        the run replaced. Raises CodecError.
        """
        run, asked = self._run_params, request.params
        params = {**asked, **run}
        if request.instructions:
            params["instructions"] = request.instructions
        asked_now = _AskedBeside(dumps_clean(params), request.tools)
        known, message = self._params_of
        if not asked_now.is_same(known):
            whole = {**params, "tools": list(request.tools)} if request.tools else params
            message = params_from_json(whole)
            self._params_of = asked_now, message
        replaced = {key: asked[key] for key in asked if key in run and asked[key] != run[key]}
        return message, replaced


class _AskedBeside(NamedTuple):
    """What a request has in addition to its conversation: its tools, and everything else as
    JSON.
    """

    others: bytes
    tools: Sequence[Json]

    def is_same(self, other: _AskedBeside | None) -> bool:
        """Whether both requests have the same settings. Equal tools of a rollout are usually the
        same object; if they are not, they count as different.
        """
        return other is not None and self.tools is other.tools and self.others == other.others


def _run_params(params: responses_pb2.ResponseParams) -> Mapping[str, Any]:
    """The parameters that the run sets for every call."""
    found = params_to_dict(params)
    return {key: value for key, value in found.items() if key not in _THE_PROGRAMS}
