"""A rollout whose events know no end fails by name, whatever its agent does about it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.agent import Agent, Completion
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.context import RolloutContext
from gymmesh_client import attempt
from gymmesh_client.attempt import run_attempt
from gymmesh_client.rows import FailedAttempt
from gymmesh_runtime.errors import MeshError, from_status
from tests.unit.agent.mesh import ask, running
from tests.unit.agent.servicers import ScriptedModel, TinyEnvironment, says


class Talks(Agent):
    """Asks the model a hundred times; with `stubborn` it ignores what that raises."""

    def __init__(self, stubborn: bool = False) -> None:
        self.stubborn = stubborn

    async def run(self, context: RolloutContext) -> Completion:
        for _ in range(100):
            with suppress(*(MeshError,) if self.stubborn else ()):
                await context.call_model(context.items, detached=True)
        return Completion(rollout_pb2.STOP_REASON_MODEL_FINISHED)


@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize(
    ("config", "asked", "limit"),
    [
        ({"max_events": 20}, {}, "max_events"),
        ({}, {"max_events": 20}, "max_events"),
        ({"max_event_bytes": 4000}, {}, "max_event_bytes"),
        ({}, {"max_event_bytes": 4000}, "max_event_bytes"),
    ],
)
async def test_it_fails_by_name(
    config: dict[str, Any], asked: dict[str, Any], limit: str, stubborn: bool
) -> None:
    settings = AgentConfig(
        use=f"{__name__}:Talks", options={"stubborn": stubborn}, max_steps=None, **config
    )
    models = {"policy": ScriptedModel([says("fine")], repeat=True)}
    request = ask()
    request.options.MergeFrom(agent_pb2.RolloutOptions(**asked))
    async with running("direct", TinyEnvironment(), models, settings) as mesh:
        events = await mesh.run(request)
    failure = events[-1].failed.failure
    assert failure.boundary == rollout_pb2.BOUNDARY_BUDGET
    assert not failure.retry_safe
    error = from_status(failure.status)
    assert error.reason_name == "ATTEMPT_TOO_LARGE"
    assert error.metadata["limit"] == limit
    assert len(events) == 22 if limit == "max_events" else len(events) < 60


class Endless:
    """An agent of somebody else, whose stream has no end."""

    async def run_rollout(self, request: Any, *, timeout: float, sink: Any) -> None:
        sequence = 0
        async for event in self.events():
            sequence += 1
            event.sequence = sequence
            event.rollout_id, event.attempt = request.rollout_id, request.attempt
            sink(event)

    async def events(self) -> AsyncIterator[rollout_pb2.RolloutEvent]:
        yield rollout_pb2.RolloutEvent(started=rollout_pb2.Started(contract_version="1.0"))
        while True:
            yield rollout_pb2.RolloutEvent(
                annotation=rollout_pb2.Annotation(key="k", value_json=b"1" * 1000), ignorable=True
            )


@pytest.mark.parametrize("bound", ["_MOST_EVENTS", "_MOST_BYTES"])
async def test_a_collector_bounds_the_streams_of_strangers(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, bound, 1000)

    async def connect(agent: str) -> Any:
        return Endless()

    request = ask()
    request.attempt = 1
    ended = await run_attempt(connect, request, repeat_index=0, timeout_s=600)
    assert isinstance(ended, FailedAttempt)
    assert ended.failure.boundary == rollout_pb2.BOUNDARY_BUDGET
    assert from_status(ended.failure.status).reason_name == "ATTEMPT_TOO_LARGE"
