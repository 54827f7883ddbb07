"""Calls model services: picks the instance, takes the answer whole or as it is generated."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.answer import check_answer
from gymmesh_agent.asking import Asking
from gymmesh_agent.clock import RolloutClock
from gymmesh_agent.events import EventStream
from gymmesh_agent.peers import MODEL_SERVICE, ModelPeer
from gymmesh_agent.session import PICK_S
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory

_Frames = AsyncGenerator[model_pb2.StreamResponseResponse, None]


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


class ModelFacts:
    """What GetModel said, by instance: constant while a server runs, so asked once."""

    def __init__(self) -> None:
        self._known: dict[str, model_pb2.ModelCapabilities] = {}

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


class ModelCaller:
    """The model calls of one attempt, all of them routed by its rollout's id.

    Args:
        facts: what is known of model services, shared by all attempts.
        timeout_s: seconds that one call may take.
        deltas: where OutputDelta events go; None: answers are taken whole.
    """

    __slots__ = ("_clock", "_deltas", "_directory", "_facts", "_timeout_s", "_unknown")

    def __init__(
        self,
        *,
        directory: PeerDirectory,
        facts: ModelFacts,
        clock: RolloutClock,
        timeout_s: float,
        deltas: EventStream | None,
    ) -> None:
        self._directory = directory
        self._facts = facts
        self._unknown = 0
        self._clock = clock
        self._timeout_s = timeout_s
        self._deltas = deltas

    async def ask(
        self, model: str, rollout_id: str, asking: Asking
    ) -> model_pb2.CreateResponseResponse:
        """One answer of the model service called `model`.

        A service that keeps conversations is sent what is new, and the whole when it says that
        it does not have the rest.

        Raises:
            MeshError: as the service says; MODEL_ANSWER_INVALID for a response that is none.
        """
        instance = await self._directory.pick(
            MODEL_SERVICE, model, affinity=rollout_id, timeout=self._clock.hop(PICK_S)
        )
        peer: ModelPeer = self._directory.peer(instance)
        if not asking.worth_keeping:
            if self._deltas is not None:
                return await self._send(peer, asking.plain())
            # The usual case without a layer in between: thousands of calls wait here.
            timeout = self._clock.hop(self._timeout_s)
            reply = await peer.CreateResponse(asking.plain(), timeout=timeout)
            check_answer(reply.response)
            return reply
        facts = await self._facts.capabilities(instance, peer, self._clock.hop(PICK_S))
        if not facts.conversations:
            return await self._send(peer, asking.plain())
        if asking.continues and self._unknown < _MOST_UNKNOWN:
            try:
                return await self._send(peer, asking.short())
            except MeshError as error:
                if error.reason != errors_pb2.ERROR_REASON_CONVERSATION_UNKNOWN:
                    raise
                self._unknown += 1
        return await self._send(peer, asking.whole())

    async def weights_version(self, model: str, rollout_id: str) -> int | None:
        """The current version of a model's weights; None when it is not known."""
        try:
            instance = await self._directory.pick(
                MODEL_SERVICE, model, affinity=rollout_id, timeout=self._clock.hop(PICK_S)
            )
            peer: ModelPeer = self._directory.peer(instance)
            said = await peer.GetModel(model_pb2.GetModelRequest(), timeout=self._clock.hop(PICK_S))
        except MeshError:
            return None
        return said.weights_version if said.HasField("weights_version") else None

    async def _send(
        self, peer: ModelPeer, request: model_pb2.CreateResponseRequest
    ) -> model_pb2.CreateResponseResponse:
        reply = None
        if self._deltas is not None:
            reply = await self._streamed(peer, request, self._deltas)
        if reply is None:
            timeout = self._clock.hop(self._timeout_s)
            reply = await peer.CreateResponse(request, timeout=timeout)
        check_answer(reply.response)
        return reply

    async def _streamed(
        self, peer: ModelPeer, request: model_pb2.CreateResponseRequest, events: EventStream
    ) -> model_pb2.CreateResponseResponse | None:
        """The answer of StreamResponse, or None when the service does not offer it."""
        call = model_pb2.StreamResponseRequest(call=request)
        frames = peer.StreamResponse(call, timeout=self._clock.hop(self._timeout_s))
        try:
            async with aclosing(cast("_Frames", frames)):
                async for frame in frames:
                    if frame.HasField("completed"):
                        return frame.completed
                    await events.emit(_delta(request.call_id, frame.delta))
        except MeshError as error:
            if error.reason != errors_pb2.ERROR_REASON_NOT_OFFERED:
                raise
            return None
        raise MeshError(
            errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, "the streamed answer broke off before its end"
        )


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
