"""Model calls that break off while another one goes on, and those that lack tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

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


class TokenlessModel:
    """Answers without tokens."""

    async def GetModel(
        self, request: model_pb2.GetModelRequest, *, timeout: float
    ) -> model_pb2.GetModelResponse:
        return model_pb2.GetModelResponse()

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, *, timeout: float
    ) -> model_pb2.CreateResponseResponse:
        return model_pb2.CreateResponseResponse(response=says("4"))


class TwoInstances(PeerDirectory):
    """Two instances of a model service elsewhere, both served by one model."""

    def __init__(self, model: BreakingModel | TokenlessModel | BrokenConnections) -> None:
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


def client_of(
    services: ModelServices,
    config: AgentConfig,
    options: agent_pb2.RolloutOptions,
    sent: list[rollout_pb2.RolloutEvent],
) -> tuple[ModelClient, Continuations]:
    """The model client of one attempt, whose events go to `sent`."""
    attempt = AttemptId("r", 1)
    plan = RolloutPlans(config, ()).read(options, params_from_json({}))
    continuations = Continuations(attempt.name, ConversationTree(()), plan)
    client = ModelClient(
        services,
        attempt,
        plan,
        continuations,
        AttemptTally(),
        RolloutClock(None, 60.0),
        EventStream("r", 1, sent.append),
    )
    return client, continuations


async def test_a_call_that_sent_deltas_is_not_asked_again_whatever_another_call_sends() -> None:
    model, sent = BreakingModel(), list[rollout_pb2.RolloutEvent]()
    options = agent_pb2.RolloutOptions(deltas=True)
    services = ModelServices(TwoInstances(model), 60.0)
    client, continuations = client_of(services, AgentConfig(), options, sent)
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


@pytest.mark.parametrize(("captures", "warnings"), [(True, 1), (False, 0)])
async def test_a_model_without_tokens_is_logged_once_where_they_are_wanted(
    captures: bool, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    services = ModelServices(TwoInstances(TokenlessModel()), 60.0)
    config = AgentConfig(capture_tokens=captures)
    for _ in range(2):
        client, continuations = client_of(services, config, agent_pb2.RolloutOptions(), [])
        about = rollout_pb2.ModelCallCompleted(call_id="c1", model="policy")
        await client.ask(continuations.request(about, "policy", None, ()))
    said = [
        one.getMessage() for one in caplog.records if "returns no token ids" in one.getMessage()
    ]
    assert len(said) == warnings
    assert all("model 'policy'" in one and "capture_tokens" in one for one in said)


class TokenModel(TokenlessModel):
    """Answers with tokens, and no side data."""

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, *, timeout: float
    ) -> model_pb2.CreateResponseResponse:
        reply = await super().CreateResponse(request, timeout=timeout)
        reply.tokens.output_token_ids = b"\1\0\0\0"
        return reply


async def test_side_data_that_a_model_does_not_give_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    services = ModelServices(TwoInstances(TokenModel()), 60.0)
    config = AgentConfig(capture_tokens=True, capture_side_data=["values"])
    for _ in range(2):
        client, continuations = client_of(services, config, agent_pb2.RolloutOptions(), [])
        about = rollout_pb2.ModelCallCompleted(call_id="c1", model="policy")
        await client.ask(continuations.request(about, "policy", None, ()))
    said = [one.getMessage() for one in caplog.records if "side data" in one.getMessage()]
    assert len(said) == 1
    assert "model 'policy' returns no side data 'values'" in said[0]


def test_side_data_is_captured_with_tokens_only() -> None:
    with pytest.raises(ValueError, match="capture_side_data: needs capture_tokens"):
        AgentConfig(capture_side_data=["values"])


class BrokenConnections:
    """The connection breaks during the first calls; their answer is there for a retry."""

    def __init__(self, breaks: int) -> None:
        self.asked: list[str] = []
        self._breaks = breaks

    async def GetModel(
        self, request: model_pb2.GetModelRequest, *, timeout: float
    ) -> model_pb2.GetModelResponse:
        return model_pb2.GetModelResponse()

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, *, timeout: float
    ) -> model_pb2.CreateResponseResponse:
        self.asked.append(request.request_id)
        if len(self.asked) <= self._breaks:
            raise MeshError(errors_pb2.ERROR_REASON_MUX_BROKEN, "the connection broke")
        return model_pb2.CreateResponseResponse(response=says("4"))


@pytest.mark.parametrize(("breaks", "answers"), [(1, True), (8, True), (9, False)])
async def test_a_call_whose_connection_broke_is_asked_again_under_its_request_id(
    breaks: int, answers: bool
) -> None:
    model = BrokenConnections(breaks)
    services = ModelServices(TwoInstances(model), 60.0)
    client, continuations = client_of(services, AgentConfig(), agent_pb2.RolloutOptions(), [])
    about = rollout_pb2.ModelCallCompleted(call_id="c1", model="policy")
    request = continuations.request(about, "policy", None, ())
    if answers:
        await client.ask(request)
    else:
        with pytest.raises(MeshError) as caught:
            await client.ask(request)
        assert caught.value.reason == errors_pb2.ERROR_REASON_MUX_BROKEN
    assert model.asked == ["r/1/c1"] * (breaks + answers)
