"""Calls model services: chooses the instance, and receives the answer as a whole or as it is
generated.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from typing import Any, Protocol, TypeVar, cast

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.events import EventStream
from gymmesh_agent.model.conversation import Continuations, ModelRequest
from gymmesh_agent.plan import AttemptId, RolloutClock, RolloutPlan, add_items
from gymmesh_agent.tally import AttemptTally
from gymmesh_responses import overlay_without, params_from_json, params_to_dict
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory

_log = logging.getLogger("gymmesh.agent")
ReplyT = TypeVar("ReplyT")

MODEL_SERVICE = "gymmesh.model.v1.ModelService"
# Seconds to wait for an instance to appear, and for what it says of itself.
PICK_S = 5.0
# So many instances are asked for one answer; the first included.
_MOST_ASKED = 3
# An instance is asked again so often after the connection to it broke. The answer to the same
# request_id is the same one, if the instance still has it.
_MOST_BROKEN = 8
# Conversations that a service dropped so often are dropped again: it holds too few.
_MOST_UNKNOWN = 2
# The least that OpenAI's Responses API takes as `max_output_tokens`; a smaller cap would be
# refused, and a limit of the policy's would turn into a failure.
_LEAST_OUTPUT_TOKENS = 16
# Sampling seeds stay within what every backend takes (llama.cpp: 32 bits, unsigned).
_SEED_BITS = 31
_NO_PARAMS = responses_pb2.ResponseParams(input_omitted=True, tools_omitted=True)
_UNANSWERED = frozenset(
    (
        errors_pb2.ERROR_REASON_PEER_UNAVAILABLE,
        errors_pb2.ERROR_REASON_DEADLINE_PASSED,
        errors_pb2.ERROR_REASON_DRAINING,
        errors_pb2.ERROR_REASON_MUX_BROKEN,
    )
)


class ModelPeer(Protocol):
    """The RPCs of a model service that an agent calls; each raises MeshError."""

    async def GetModel(
        self, request: model_pb2.GetModelRequest, *, timeout: float
    ) -> model_pb2.GetModelResponse:
        """The model's description."""

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, *, timeout: float
    ) -> model_pb2.CreateResponseResponse:
        """One answer."""

    def StreamResponse(
        self, request: model_pb2.StreamResponseRequest, *, timeout: float
    ) -> AsyncIterator[model_pb2.StreamResponseResponse]:
        """One answer, as it is generated."""

    async def ScoreContinuations(
        self, request: model_pb2.ScoreContinuationsRequest, *, timeout: float
    ) -> model_pb2.ScoreContinuationsResponse:
        """The log probabilities of texts."""


class ModelServices:
    """The model services that all attempts of one agent call.

    Args:
        call_s: seconds that one model call may take; None: the rest of the attempt's time.
    """

    def __init__(self, directory: PeerDirectory, call_s: float | None) -> None:
        self.directory = directory
        self.call_s = math.inf if call_s is None else call_s
        # By instance: constant while a server runs, so asked once.
        self._capabilities: dict[str, model_pb2.ModelCapabilities] = {}
        self._without_tokens = set[str]()
        self._without_side_data = set[tuple[str, str]]()

    def answered_without_tokens(self, model: str) -> None:
        """Log, once for each model, that tokens were requested and the model returns none."""
        if model not in self._without_tokens:
            self._without_tokens.add(model)
            _log.warning(
                "model '%s' returns no token ids, but capture_tokens is true. Use a backend that "
                "returns token ids (vllm, vllm_tokens, sglang, or a TokenBackend), or set "
                "capture_tokens to false",
                model,
            )

    async def check_scoring(self, model: str) -> None:
        """Raises MeshError NOT_OFFERED if a model can't score texts. A model that can't be
        reached now is not checked; its calls then fail.
        """
        try:
            instance = await self.directory.pick(MODEL_SERVICE, model, timeout=PICK_S)
            peer: ModelPeer = self.directory.peer(instance)
            about = await peer.GetModel(model_pb2.GetModelRequest(), timeout=PICK_S)
        except MeshError:
            return
        if not about.capabilities.scoring:
            raise MeshError(
                errors_pb2.ERROR_REASON_NOT_OFFERED,
                f"model '{model}' can't score choices: its backend '{about.backend}' returns no "
                "log probabilities of given tokens. Use the backend vllm, vllm_tokens, sglang or "
                "local, or the agent tool_loop, which lets the model write the answer",
                metadata={"method": f"{MODEL_SERVICE}/ScoreContinuations", "model": model},
            )

    def answered_without_side_data(self, model: str, names: Iterable[str]) -> None:
        """Log, once for each model and name, that side data was requested and not returned."""
        for name in names:
            if (model, name) not in self._without_side_data:
                self._without_side_data.add((model, name))
                _log.warning(
                    "model '%s' returns no side data '%s', but capture_side_data requests this "
                    "side data. Use a backend that returns this side data, and set the model's key "
                    "side_data.path to a folder",
                    model,
                    name,
                )

    async def capabilities(
        self, instance: discovery_pb2.Instance, timeout: float
    ) -> model_pb2.ModelCapabilities:
        """What the instance can do; the minimum if it does not report that."""
        known = self._capabilities.get(instance.id)
        if known is not None:
            return known
        found = model_pb2.ModelCapabilities()
        try:
            peer: ModelPeer = self.directory.peer(instance)
            model = await peer.GetModel(model_pb2.GetModelRequest(), timeout=timeout)
            found = model.capabilities
        except MeshError as error:
            if error.reason in _UNANSWERED:
                return found  # asked again at the next call
        self._capabilities[instance.id] = found
        return found


class ModelClient:
    """The model calls of one attempt, all of them routed by the rollout's id.

    Args:
        attempt: its name begins the request ids.
        tally: the attempt's counts so far; read only.
        events: where OutputDelta events go, if the plan wants them.
    """

    def __init__(
        self,
        services: ModelServices,
        attempt: AttemptId,
        plan: RolloutPlan,
        continuations: Continuations,
        tally: AttemptTally,
        clock: RolloutClock,
        events: EventStream,
    ) -> None:
        self._services = services
        self._attempt = attempt
        self._plan = plan
        self._continuations = continuations
        self._tally = tally
        self._clock = clock
        self._deltas = events if plan.deltas else None
        self._unknown = 0  # how often a service had dropped the conversation
        # The calls of which it had: a repeat under the same request_id is to be the same request.
        self._sent_whole = set[str]()
        self._streamed = set[str]()  # the calls of which a delta was sent on

    async def ask(self, request: ModelRequest) -> model_pb2.CreateResponseResponse:
        """The model service's reply.

        If an instance cannot be reached or is shutting down, other instances of the same name are
        asked. If the connection broke during the call, the same instance is asked again with the
        same request_id. Neither is done after a part of the answer was sent on.

        Raises:
            MeshError: the service's error.
        """
        reply = await self._ask(request)
        # A trainer asks every model for tokens, and handles rollouts without samples itself.
        by_configuration = not self._plan.options.HasField("capture")
        wanted = by_configuration and self._plan.capture is not None and request.role == "policy"
        if wanted and reply.response.output and not (reply.from_cache or _has_tokens(reply)):
            self._services.answered_without_tokens(request.model)
        if self._plan.capture is not None and _has_tokens(reply) and request.role == "policy":
            found = {one.name for one in reply.tokens.side_data}
            missing = [one for one in self._plan.capture.side_data if one not in found]
            self._services.answered_without_side_data(request.model, missing)
        return reply

    async def score(
        self, request: ModelRequest, texts: Sequence[str]
    ) -> model_pb2.ScoreContinuationsResponse:
        """The log probabilities of texts as the answer to a request. Raises MeshError as `ask`."""
        message = model_pb2.ScoreContinuationsRequest(
            continuations=texts, rollout_id=self._attempt.rollout_id
        )
        fill_params(message.params, self._base(request), request.items, None, request.changes)

        def score_at(
            instance: discovery_pb2.Instance,
        ) -> Awaitable[model_pb2.ScoreContinuationsResponse]:
            peer: ModelPeer = self._services.directory.peer(instance)
            timeout = self._clock.hop(self._services.call_s)
            return peer.ScoreContinuations(message, timeout=timeout)

        return await self._somewhere(request, score_at)

    def _ask(self, request: ModelRequest) -> Awaitable[model_pb2.CreateResponseResponse]:
        return self._somewhere(request, lambda instance: self._ask_at(request, instance))

    async def _somewhere(
        self, request: ModelRequest, ask_at: Callable[[discovery_pb2.Instance], Awaitable[ReplyT]]
    ) -> ReplyT:
        """The reply of an instance, or of another instance if the first can't be reached."""
        instance = await self._pick(request.model)
        asked, broken = 1, 0
        while True:
            try:
                return await ask_at(instance)
            except MeshError as error:
                if request.call_id in self._streamed:
                    raise
                if error.reason == errors_pb2.ERROR_REASON_MUX_BROKEN and broken < _MOST_BROKEN:
                    broken += 1
                    continue
                if asked == _MOST_ASKED:
                    raise
                asked += 1
                other = await self._services.directory.instead(
                    instance,
                    error,
                    affinity=self._attempt.rollout_id,
                    timeout=min(PICK_S, self._clock.remaining()),
                )
                if other is None:
                    raise
                instance = other

    async def weights_version(self, model: str) -> int | None:
        """The current version of a model's weights; None if it is unknown."""
        try:
            peer: ModelPeer = self._services.directory.peer(await self._pick(model))
            found = await peer.GetModel(
                model_pb2.GetModelRequest(), timeout=self._clock.hop(PICK_S)
            )
        except MeshError:
            return None
        return found.weights_version if found.HasField("weights_version") else None

    def _pick(self, model: str) -> Awaitable[discovery_pb2.Instance]:
        """The instance for this rollout's calls of a model service. Raises MeshError."""
        return self._services.directory.pick(
            MODEL_SERVICE, model, affinity=self._attempt.rollout_id, timeout=PICK_S
        )

    async def _ask_at(
        self, request: ModelRequest, instance: discovery_pb2.Instance
    ) -> model_pb2.CreateResponseResponse:
        """The reply of one instance.

        If the instance keeps conversations, only the new items are sent. If it doesn't, or if it
        answers CONVERSATION_UNKNOWN, the whole conversation is sent.
        """
        peer: ModelPeer = self._services.directory.peer(instance)
        continuation = request.continuation
        if continuation is not None:
            able = await self._services.capabilities(instance, self._clock.hop(PICK_S))
            if not able.conversations:
                continuation = None
        if continuation is None:
            request.is_plain = True
            return await self._send(peer, self._message(request))
        shortens = self._unknown < _MOST_UNKNOWN and request.call_id not in self._sent_whole
        if continuation.known_items and shortens:
            short = self._message(request, continuation.known_items)
            short.conversation.id = continuation.conversation_id
            short.conversation.parent_call_id = request.parent
            short.conversation.parent_token = continuation.token
            try:
                return await self._send(peer, short)
            except MeshError as error:
                if error.reason != errors_pb2.ERROR_REASON_CONVERSATION_UNKNOWN:
                    raise
                self._unknown += 1
                self._sent_whole.add(request.call_id)
        whole = self._message(request)
        whole.conversation.id = continuation.conversation_id
        tokens = self._continuations.prefix_tokens(request)
        if tokens is not None:
            whole.conversation.prefix_tokens.CopyFrom(tokens)
        return await self._send(peer, whole)

    def _send(
        self, peer: ModelPeer, message: model_pb2.CreateResponseRequest
    ) -> Awaitable[model_pb2.CreateResponseResponse]:
        """The reply; if deltas are wanted and the service offers StreamResponse, as a stream."""
        if self._deltas is not None:
            return self._stream(peer, message, self._deltas)
        return peer.CreateResponse(message, timeout=self._clock.hop(self._services.call_s))

    async def _stream(
        self, peer: ModelPeer, message: model_pb2.CreateResponseRequest, events: EventStream
    ) -> model_pb2.CreateResponseResponse:
        """The reply; its deltas are sent on. If the service offers no stream, the reply arrives
        as a whole.
        """
        call = model_pb2.StreamResponseRequest(call=message)
        frames = peer.StreamResponse(call, timeout=self._clock.hop(self._services.call_s))
        generator = cast("AsyncGenerator[model_pb2.StreamResponseResponse, None]", frames)
        try:
            async with aclosing(generator):
                async for frame in generator:
                    if frame.HasField("completed"):
                        return frame.completed
                    self._streamed.add(message.call_id)
                    await events.emit(_delta(message.call_id, frame.delta))
        except MeshError as error:
            if error.reason != errors_pb2.ERROR_REASON_NOT_OFFERED:
                raise
            timeout = self._clock.hop(self._services.call_s)
            return await peer.CreateResponse(message, timeout=timeout)
        problem = "the stream of the model's answer ended before the answer was complete"
        raise MeshError(errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, problem)

    def _message(
        self, request: ModelRequest, known_items: int = 0
    ) -> model_pb2.CreateResponseRequest:
        """The request without `conversation`, with its items from position `known_items` on."""
        attempt, plan = self._attempt, self._plan
        budget = plan.limits.max_total_output_tokens
        message = model_pb2.CreateResponseRequest(
            rollout_id=attempt.rollout_id,
            request_id=f"{attempt.name}/{request.call_id}",
            call_id=request.call_id,
        )
        fill_params(
            message.params,
            self._base(request),
            request.items[known_items:],
            None if budget is None else budget - self._tally.output_tokens,
            request.changes,
        )
        if attempt.seed is not None:
            message.seed = sampling_seed(attempt.seed, request.call_id)
        if request.continuation is not None and plan.capture is not None:
            message.capture.CopyFrom(plan.capture)
            message.append_only = plan.append_only
        return message

    def _base(self, request: ModelRequest) -> responses_pb2.ResponseParams:
        """The parameters of a request, without its input and its own changes."""
        if request.captured is not None:
            return request.captured
        return self._plan.params if request.role == "policy" else _NO_PARAMS


def fill_params(
    params: responses_pb2.ResponseParams,
    base: responses_pb2.ResponseParams,
    items: Sequence[responses_pb2.Item],
    tokens_left: int | None,
    changes: Mapping[str, Any] | None = None,
) -> None:
    """Write the parameters of one model call: the rollout's parameters with a conversation.

    Args:
        params: the message to fill; empty.
        base: the rollout's parameters, without input.
        items: the conversation.
        tokens_left: the rollout's remaining output tokens, which limit `max_output_tokens`, down to
            16. So a budget can be exceeded by at most 15 tokens. None: no budget.
        changes: keys that only this call changes.

    Raises:
        ValueError: `changes` has `input` (use `items`), or is not JSON.
    """
    if changes and "input" in changes:
        raise ValueError("params: `input` comes from the conversation; pass `items` instead")
    if changes:
        base = params_from_json({**params_to_dict(base), **changes})
    params.CopyFrom(base)
    params.input_omitted = False
    if tokens_left is not None:
        cap = max(tokens_left, _LEAST_OUTPUT_TOKENS)
        if not params.HasField("max_output_tokens") or params.max_output_tokens > cap:
            params.max_output_tokens = cap
            params.overlay_json = overlay_without(params.overlay_json, "max_output_tokens")
    add_items(params.input, items)


def _has_tokens(reply: model_pb2.CreateResponseResponse) -> bool:
    return bool(reply.tokens.output_token_ids or reply.tokens.prompt_token_ids)


def sampling_seed(seed: int, call_id: str) -> int:
    """The seed of one model call: different for each call, and always the same for the same call.

    The seed is the same in every attempt. So a rollout that runs again, after a failure or in a
    resumed run, samples the same as the lost attempt: failures must not choose the samples.

    The first 31 bits of SHA-256 over `<seed>/<call_id>`.
    """
    digest = hashlib.sha256(f"{seed}/{call_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> (32 - _SEED_BITS)


def _delta(call_id: str, piece: model_pb2.ResponseDelta) -> rollout_pb2.RolloutEvent:
    event = rollout_pb2.RolloutEvent(ignorable=True)
    delta = event.output_delta
    delta.call_id, delta.output_index = call_id, piece.output_index
    kind = piece.WhichOneof("delta")
    if kind == "text":
        delta.text = piece.text
    elif kind == "arguments":
        delta.arguments = piece.arguments
    elif kind == "reasoning":
        delta.reasoning = piece.reasoning
    return event
