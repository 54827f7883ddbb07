"""Labels of metrics take no values that callers make up: 2,000 names leave a handful of series."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.model.v1 import tokens_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.environment import session
from gymmesh_agent.model import client
from gymmesh_agent.model.tokens import CapturedTokens
from gymmesh_discovery.backends.memory import MemoryRegistry
from gymmesh_resource import EnvironmentConfig, ResourceService
from gymmesh_resource.service import RESOURCE_SERVICE
from gymmesh_runtime import metrics
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.integration.agent.words import policy
from tests.unit.agent.mesh import ask, running
from tests.unit.agent.servicers import TinyEnvironment
from tests.unit.runtime.probe import until

NAMES: Final = 2_000
#: The most series that one kind of call may add: a few outcomes, and a histogram's buckets.
FEW: Final = 100
AT_ONCE: Final = 200
Call = Callable[[int], Coroutine[Any, Any, None]]


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody registered is waited for, for seconds each."""
    monkeypatch.setattr(session, "PICK_S", 0.001)
    monkeypatch.setattr(client, "PICK_S", 0.001)


def series() -> int:
    return sum(len(family.samples) for family in metrics.REGISTRY.collect())


@asynccontextmanager
async def few_new_series() -> AsyncIterator[None]:
    before = series()
    yield
    assert series() - before < FEW


async def each(call: Call, names: int = NAMES) -> None:
    """Calls with every number, some at a time."""
    numbers = iter(range(names))

    async def some() -> None:
        for number in numbers:
            await call(number)

    async with asyncio.TaskGroup() as callers:
        for _ in range(AT_ONCE):
            callers.create_task(some())


def made_up(what: str, number: int) -> agent_pb2.RunRolloutRequest:
    """An attempt whose environment, model, run or tags nobody has heard of."""
    request = ask()
    request.rollout_id = f"rollout-{number}"
    name = f"made-up-{number}"
    if what == "environment":
        request.task.environment = name
    elif what == "model":
        request.options.models["policy"] = name
    else:
        request.run_id = request.task.task_id = name
        request.task.tags[name] = name
        request.task.environment = name
    return request


@pytest.mark.parametrize("what", ["environment", "model", "run"])
async def test_what_a_collector_makes_up(what: str) -> None:
    async with running("direct", TinyEnvironment(), policy()) as mesh:

        async def attempt(number: int) -> None:
            events = [
                response.event
                async for response in mesh.agent.RunRollout(made_up(what, number), timeout=120.0)
            ]
            assert events[-1].WhichOneof("event") == "failed"

        async with few_new_series():
            # With a made-up model a session is opened, and closed, for each.
            await each(attempt, 500 if what == "model" else NAMES)


async def test_tools_that_a_model_makes_up() -> None:
    service = ResourceService(EnvironmentConfig(), "math", "math-0")
    directory = PeerDirectory()
    await service.open(directory)
    instance = discovery_pb2.Instance(
        id="math-0", service=RESOURCE_SERVICE, name="math", health=discovery_pb2.HEALTH_SERVING
    )
    directory.add_direct(instance, service.servicers())
    peer: Any = directory.peer(instance)
    task = rollout_pb2.Task(
        task_id="t", environment="math", payload_json=b'{"expected_answer": "4"}'
    )
    request = resource_pb2.CreateSessionRequest(task=task, request_id="s")
    opened = await peer.CreateSession(request, timeout=60.0)

    async def call(number: int) -> None:
        request = resource_pb2.CallToolRequest(
            session_id=opened.session_id,
            name=f"made_up_{number}",
            arguments=b"{}",
            request_id=f"r{number}",
        )
        answer = await peer.CallTool(request, timeout=60.0)
        assert answer.outcome == rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL

    try:
        async with few_new_series():
            await each(call)
    finally:
        await directory.close()
        await service.close()


async def test_groups_that_a_caller_makes_up() -> None:
    async with running("direct", TinyEnvironment(), policy()) as mesh:

        async def judge(number: int) -> None:
            request = agent_pb2.JudgeGroupRequest()
            request.group.task.environment = f"made-up-{number}"
            with pytest.raises(MeshError):
                await mesh.agent.JudgeGroup(request, timeout=60.0)

        async with few_new_series():
            await each(judge)


async def test_kinds_that_a_service_makes_up() -> None:
    registry = MemoryRegistry(lambda: 0.0)  # no lease runs out

    async def register(number: int) -> None:
        instance = discovery_pb2.Instance(
            id=f"i{number}", service=f"made.up.v1.S{number}", name=f"n{number}", address="h:1"
        )
        await registry.register(instance, 15, "")

    def counted() -> float | None:
        labels = {"service": "other", "health": "serving"}
        return metrics.REGISTRY.get_sample_value("gymmesh_instances", labels)

    await registry.open()
    async with few_new_series():
        for number in range(1000):
            await register(number)
        await until(lambda: counted() == 1000)  # the metric is set once a second
    await registry.close()


def test_reasons_of_forks_that_a_model_makes_up() -> None:
    found = set()
    for number in range(NAMES):
        capture = tokens_pb2.TokenCapture()
        # As they come from a peer: the enum is open.
        capture.ParseFromString(tokens_pb2.TokenCapture(fork=fork_of(number)).SerializeToString())
        settled = CapturedTokens().settle("c", "", capture, prompt_items=0, output_items=0)
        found.add(settled.fork)
    assert len(found) < 20


def fork_of(number: int) -> tokens_pb2.Fork:
    fork = tokens_pb2.Fork()
    fork.MergeFromString(b"\x08" + bytes([number & 0x7F | 0x80, number >> 7]))
    return fork
