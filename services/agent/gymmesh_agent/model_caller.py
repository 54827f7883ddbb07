"""Calls model services: picks the instance, takes the answer whole or as it is generated."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import cast

import msgspec

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.asking import Asking, Kept
from gymmesh_agent.attempt_id import AttemptId
from gymmesh_agent.clock import RolloutClock
from gymmesh_agent.events import EventStream
from gymmesh_agent.params import fill_params, go_on, sampling_seed
from gymmesh_agent.peers import MODEL_SERVICE, ModelPeer
from gymmesh_agent.session import PICK_S
from gymmesh_agent.tally import Tally
from gymmesh_agent.terms import Course
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory

_Frames = AsyncGenerator[model_pb2.StreamResponseResponse, None]

# The method of the class: a message looks through the names of its fields to find its own.
_copy_request = model_pb2.CreateResponseRequest.CopyFrom

_NO_PARAMS = responses_pb2.ResponseParams(input_omitted=True, tools_omitted=True)
# So many instances are asked for one answer; the first included.
_MOST_ASKED = 3
# Conversations that a service dropped so often are dropped again: it holds too few.
_MOST_UNKNOWN = 2
_UNANSWERED = frozenset(
    (
        errors_pb2.ERROR_REASON_PEER_UNAVAILABLE,
        errors_pb2.ERROR_REASON_DEADLINE_PASSED,
        errors_pb2.ERROR_REASON_DRAINING,
        errors_pb2.ERROR_REASON_MUX_BROKEN,
    )
)


class Models:
    """The model services, as all attempts of one agent call them.

    Args:
        call_s: seconds that one model call may take.
    """

    def __init__(self, directory: PeerDirectory, call_s: float) -> None:
        self.directory = directory
        self.call_s = call_s
        # What GetModel said, by instance: constant while a server runs, so asked once.
        self._known: dict[str, model_pb2.ModelCapabilities] = {}
        # Those that are the only ones of their name, as of a state of the directory.
        self._only: dict[str, discovery_pb2.Instance] = {}
        self._as_of = directory.changes

    def peer(self, instance: discovery_pb2.Instance) -> ModelPeer:
        """How an instance is called."""
        peer: ModelPeer = self.directory.peer(instance)
        return peer

    def choose(self, model: str, affinity: str) -> discovery_pb2.Instance | None:
        """One to be called now under this name; None: there is none, or none yet."""
        directory = self.directory
        if directory.changes != self._as_of:
            self._only, self._as_of = {}, directory.changes
        only = self._only.get(model)
        if only is not None:
            return only
        instance = directory.choose(MODEL_SERVICE, model, affinity=affinity)
        if instance is not None and len(directory.serving(MODEL_SERVICE, model)) == 1:
            self._only[model] = instance
        return instance

    async def capabilities(
        self, instance: discovery_pb2.Instance, peer: ModelPeer, timeout: float
    ) -> model_pb2.ModelCapabilities:
        """What the instance can do; nothing beyond the least when it does not say."""
        known = self._known.get(instance.id)
        if known is not None:
            return known
        try:
            model = await peer.GetModel(model_pb2.GetModelRequest(), timeout=timeout)
            found = model.capabilities
        except MeshError as error:
            if error.reason in _UNANSWERED:
                return model_pb2.ModelCapabilities()
            found = model_pb2.ModelCapabilities()
        self._known[instance.id] = found
        return found


class ModelCaller(msgspec.Struct, eq=False):
    """The model calls of one attempt, all of them routed by its rollout's id.

    Attributes:
        course: says with which parameters the policy is called.
        budget: how many output tokens the rollout may have; None: no limit.
        tally: what was done so far; read alone.
        deltas: where OutputDelta events go; None: answers are taken whole.
        unknown: how often a service had dropped the conversation.
        streaming: the id of the last call of which deltas came.
    """

    # A Struct, as ModelCall.

    _models: Models
    _who: AttemptId
    _course: Course
    _budget: int | None
    _tally: Tally
    _clock: RolloutClock
    _deltas: EventStream | None
    _unknown: int = 0
    _streaming: str = ""

    def ask(self, asking: Asking) -> Awaitable[model_pb2.CreateResponseResponse]:
        """The reply of the model service.

        A service that keeps conversations is sent what is new, and the whole when it says that
        it does not have the rest.

        Raises:
            MeshError: as the service says; at once, or when it is waited for.
        """
        if asking.kept is None:
            instance = self._models.choose(asking.model, self._who.rollout_id)
            if instance is not None:
                # The usual case without a layer in between: thousands of calls wait here.
                asking.instance = instance
                return self._send(self._models.peer(instance), self._request(asking))
        return self._ask(asking, asking.kept)

    async def ask_elsewhere(
        self, asking: Asking, error: MeshError
    ) -> model_pb2.CreateResponseResponse:
        """The reply of another instance, after one could not be reached or was going down.

        Raises:
            MeshError: the error, where no other is there; or as the service says.
        """
        directory, affinity = self._models.directory, self._who.rollout_id
        for _ in range(_MOST_ASKED - 1):
            asked = asking.instance
            if asked is None or self._streaming == asking.call_id:
                break
            other = directory.instead(asked, error, affinity=affinity)
            if other is None:
                break
            try:
                return await self._ask(asking, asking.kept, other)
            except MeshError as next_error:
                error = next_error
        raise error

    async def _ask(
        self, asking: Asking, kept: Kept | None, other: discovery_pb2.Instance | None = None
    ) -> model_pb2.CreateResponseResponse:
        """The reply of the rollout's instance, or of another one."""
        instance = await self._pick(asking.model) if other is None else other
        asking.instance = instance
        peer = self._models.peer(instance)
        if kept is not None:
            able = await self._models.capabilities(instance, peer, self._clock.hop(PICK_S))
            if not able.conversations:
                kept = None
        if kept is None:
            asking.is_plain = True
            return await self._send(peer, self._request(asking))
        if kept.known and self._unknown < _MOST_UNKNOWN:
            try:
                return await self._send(peer, self._short(asking, kept))
            except MeshError as error:
                if error.reason != errors_pb2.ERROR_REASON_CONVERSATION_UNKNOWN:
                    raise
                self._unknown += 1
        return await self._send(peer, self._whole(asking, kept))

    async def weights_version(self, model: str) -> int | None:
        """The current version of a model's weights; None when it is not known."""
        try:
            instance = await self._pick(model)
            peer = self._models.peer(instance)
            said = await peer.GetModel(model_pb2.GetModelRequest(), timeout=self._clock.hop(PICK_S))
        except MeshError:
            return None
        return said.weights_version if said.HasField("weights_version") else None

    def _send(
        self, peer: ModelPeer, request: model_pb2.CreateResponseRequest
    ) -> Awaitable[model_pb2.CreateResponseResponse]:
        if self._deltas is not None:
            return self._streamed(peer, request, self._deltas)
        return peer.CreateResponse(request, timeout=self._clock.hop(self._models.call_s))

    async def _streamed(
        self, peer: ModelPeer, request: model_pb2.CreateResponseRequest, events: EventStream
    ) -> model_pb2.CreateResponseResponse:
        """The answer of StreamResponse; whole at once when the service does not offer that."""
        call = model_pb2.StreamResponseRequest(call=request)
        limit_s = self._models.call_s
        frames = peer.StreamResponse(call, timeout=self._clock.hop(limit_s))
        try:
            async with aclosing(cast("_Frames", frames)):
                async for frame in frames:
                    if frame.HasField("completed"):
                        return frame.completed
                    self._streaming = request.call_id
                    await events.emit(_delta(request.call_id, frame.delta))
        except MeshError as error:
            if error.reason != errors_pb2.ERROR_REASON_NOT_OFFERED:
                raise
        else:
            problem = "the streamed answer broke off before its end"
            raise MeshError(errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, problem)
        return await peer.CreateResponse(request, timeout=self._clock.hop(limit_s))

    async def _pick(self, model: str) -> discovery_pb2.Instance:
        return await self._models.directory.pick(
            MODEL_SERVICE,
            model,
            affinity=self._who.rollout_id,
            timeout=self._clock.hop(PICK_S),
        )

    def _whole(self, asking: Asking, kept: Kept) -> model_pb2.CreateResponseRequest:
        """All items, for a service that does not have the conversation (any more)."""
        request = self._request(asking)
        request.conversation.id = kept.conversation
        tokens = kept.prefix() if kept.prefix is not None else None
        if tokens is not None:
            request.conversation.prefix_tokens.CopyFrom(tokens)
        return request

    def _short(self, asking: Asking, kept: Kept) -> model_pb2.CreateResponseRequest:
        """What is new, after the call that the service knows."""
        request = self._request(asking, kept.known)
        conversation = request.conversation
        conversation.id = kept.conversation
        conversation.parent_call_id = asking.parent
        conversation.parent_token = kept.token
        return request

    def _request(self, asking: Asking, known: int = 0) -> model_pb2.CreateResponseRequest:
        """The call with its items from position `known` on, without `conversation`."""
        who, course, items, call_id = self._who, self._course, asking.items, asking.call_id
        left = None if self._budget is None else self._budget - self._tally.output_tokens
        is_policy = asking.role == "policy"
        request = model_pb2.CreateResponseRequest()
        begun, count = course.begun, len(course.items)
        if (
            begun is not None
            and is_policy
            and not known
            and not asking.changes
            and (items is course.items or tuple(items[:count]) == course.items)
        ):
            # One copy of it all takes a fraction of a copy of each item.
            _copy_request(request, begun)
            if left is not None or len(items) > count:
                go_on(request.params, items[count:], left)
        else:
            base = course.params if is_policy else _NO_PARAMS
            fill_params(request.params, base, items[known:], left, asking.changes)
        request.rollout_id = who.rollout_id
        request.request_id = f"{who.name}/{call_id}"
        request.call_id = call_id
        if who.seed is not None:
            request.seed = sampling_seed(who.seed, who.attempt, call_id)
        kept = asking.kept
        if kept is not None and kept.capture is not None:
            request.capture.CopyFrom(kept.capture)
        return request


def _delta(call_id: str, piece: model_pb2.ResponseDelta) -> rollout_pb2.RolloutEvent:
    delta = rollout_pb2.OutputDelta(call_id=call_id, output_index=piece.output_index)
    kind = piece.WhichOneof("delta")
    if kind == "text":
        delta.text = piece.text
    elif kind == "arguments":
        delta.arguments = piece.arguments
    elif kind == "reasoning":
        delta.reasoning = piece.reasoning
    return rollout_pb2.RolloutEvent(output_delta=delta, ignorable=True)
