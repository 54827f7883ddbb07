"""Model calls that break off while another one of the same attempt goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.events import EventStream
from gymmesh_agent.model.client import MODEL_SERVICE, ModelClient, ModelServices
from gymmesh_agent.model.conversation import Continuations, ConversationTree
from gymmesh_agent.plan import AttemptId, RolloutClock, RolloutPlans
from gymmesh_agent.tally import AttemptTally
from gymmesh_responses import params_from_json
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.unit.agent.servicers import says

DELTA = model_pb2.StreamResponseResponse(delta=model_pb2.ResponseDelta(text=b"x"))


class BreakingModel:
    """Streams: the call c1 breaks off once the call c2 has sent its first delta."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._second = asyncio.Event()

    async def StreamResponse(
        self, request: model_pb2.StreamResponseRequest, *, timeout: float
    ) -> AsyncIterator[model_pb2.StreamResponseResponse]:
        call_id = request.call.call_id
        self.asked.append(call_id)
        yield DELTA
        if call_id == "c1":
            await self._second.wait()
            raise MeshError(errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, "gone")
        self._second.set()
        completed = model_pb2.CreateResponseResponse(response=says("4"))
        yield model_pb2.StreamResponseResponse(completed=completed)


class TwoInstances(PeerDirectory):
    """Two instances of a model service elsewhere, both served by one model."""

    def __init__(self, model: BreakingModel) -> None:
        super().__init__()
        self._model = model
        for number in (1, 2):
            self.upsert(
                discovery_pb2.Instance(
                    id=f"policy-{number}",
                    service=MODEL_SERVICE,
                    name="policy",
                    address=f"127.0.0.1:{number}",
                    health=discovery_pb2.HEALTH_SERVING,
                )
            )

    def peer(self, instance: discovery_pb2.Instance, service: str | None = None) -> Any:
        return self._model


async def test_a_call_that_sent_deltas_is_not_asked_again_whatever_another_call_sends() -> None:
    model, sent = BreakingModel(), list[rollout_pb2.RolloutEvent]()
    attempt = AttemptId("r", 1)
    options = agent_pb2.RolloutOptions(deltas=True)
    plan = RolloutPlans(AgentConfig(), ()).read(options, params_from_json({}))
    continuations = Continuations(attempt.name, ConversationTree(()), plan)
    client = ModelClient(
        ModelServices(TwoInstances(model), 60.0),
        attempt,
        plan,
        continuations,
        AttemptTally(),
        RolloutClock(None, 60.0),
        EventStream("r", 1, sent.append),
    )
    first, second = (
        continuations.request(
            rollout_pb2.ModelCallCompleted(call_id=call_id, model="policy"), "policy", None, ()
        )
        for call_id in ("c1", "c2")
    )
    broken, answered = await asyncio.gather(
        client.ask(first), client.ask(second), return_exceptions=True
    )
    assert isinstance(broken, MeshError)
    assert broken.reason == errors_pb2.ERROR_REASON_PEER_UNAVAILABLE
    assert isinstance(answered, model_pb2.CreateResponseResponse)
    assert model.asked == ["c1", "c2"]
    assert [event.output_delta.call_id for event in sent] == ["c1", "c2"]
