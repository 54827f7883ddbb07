"""Instances that are gone but listed still, or go down: rollouts find their way round them."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.service import AgentService
from gymmesh_client import TaskDefaults, TaskReader, run_attempt
from gymmesh_client.tasks import TaskRow
from gymmesh_mesh import remote
from gymmesh_model.config import ModelConfig
from gymmesh_model.service import ModelService
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.service import ResourceService
from gymmesh_runtime.peers import TransportName
from gymmesh_runtime.serve import Served, ServeOptions, serving
from tests.support.cli import sums, write_tasks
from tests.unit.runtime.probe import MODEL, instance_at, until
from tests.unit.runtime.registry import registering

RESOURCE: Final = "gymmesh.resource.v1.ResourceService"
#: Half of them are meant for the instance that is gone: one in 16 million times none is.
ROLLOUTS: Final = 24


@pytest.fixture(params=["auto", "plain"])
def transport(request: pytest.FixtureRequest) -> TransportName:
    chosen: TransportName = request.param
    return chosen


def replaying(folder: Path) -> ModelConfig:
    """A model that calls the calculator, and then answers."""
    path = folder / "answers.jsonl"
    call = {"type": "function_call", "name": "calculator", "call_id": "call_1"}
    call["arguments"] = '{"expression": "1 + 1"}'
    path.write_text(json.dumps({"match": "*", "answers": [{"output": [call]}, {"text": "2"}]}))
    return ModelConfig(backend="replay", path=str(path))


@asynccontextmanager
async def nobody() -> AsyncIterator[str]:
    """An address at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


async def all_complete(agent: Served, tasks: Path, *, deltas: bool = False) -> None:
    """Each rollout completes, in its first attempt."""
    reader = TaskReader(TaskDefaults(environment="math", agent="tool_loop"))
    async with remote(agent.instance.address) as mesh:
        for number, row in enumerate(reader.read(tasks)):
            assert isinstance(row, TaskRow)
            request = agent_pb2.RunRolloutRequest(task=row.task, rollout_id=f"r{number}", attempt=1)
            request.options.deltas = deltas
            ended = await run_attempt(mesh.agents.connect, request, repeat_index=0, timeout_s=60.0)
            assert isinstance(ended, rollout_pb2.Rollout), ended


@pytest.mark.parametrize("deltas", [False, True])
async def test_one_that_is_gone_costs_no_attempt(
    tmp_path: Path, transport: TransportName, deltas: bool
) -> None:
    tasks = write_tasks(tmp_path, sums(ROLLOUTS))
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        registry, backend = await enter(registering())
        found = ServeOptions(
            metrics_port=None, drain_s=1.0, discovery_address=registry, transport=transport
        )
        await enter(serving(ModelService(replaying(tmp_path), "policy", "m0"), found))
        await enter(serving(ResourceService(EnvironmentConfig(), "math", "e0"), found))
        for kind, name in ((MODEL, "policy"), (RESOURCE, "math")):
            gone = instance_at(
                await enter(nobody()), instance_id=f"{name}-gone", service=kind, name=name
            )
            await backend.register(gone, 300, "")
        agent = await enter(serving(AgentService(AgentConfig(), "tool_loop", "a0"), found))
        await until(lambda: len(agent.directory.serving(MODEL, "policy")) == 2)
        await until(lambda: len(agent.directory.serving(RESOURCE, "math")) == 2)
        await all_complete(agent, tasks, deltas=deltas)


async def test_an_environment_that_opens_no_more_sessions_costs_no_attempt(
    tmp_path: Path, transport: TransportName
) -> None:
    tasks = write_tasks(tmp_path, sums(ROLLOUTS))
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        registry, _ = await enter(registering())
        found = ServeOptions(
            metrics_port=None, drain_s=1.0, discovery_address=registry, transport=transport
        )
        await enter(serving(ModelService(replaying(tmp_path), "policy", "m0"), found))
        # As one is for a moment that goes down: the registry has not heard of it yet.
        leaving = ResourceService(EnvironmentConfig(), "math", "e0")
        leaving.sessions.open_no_more()
        await enter(serving(leaving, found))
        await enter(serving(ResourceService(EnvironmentConfig(), "math", "e1"), found))
        agent = await enter(serving(AgentService(AgentConfig(), "tool_loop", "a0"), found))
        await until(lambda: len(agent.directory.serving(RESOURCE, "math")) == 2)
        await all_complete(agent, tasks)
