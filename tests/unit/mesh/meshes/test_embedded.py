"""All services in one process: how they open, and that they close."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_mesh import MeshConfig, embedded
from gymmesh_mesh.config import Defaults
from gymmesh_model.config import ModelConfig
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError

AGENT = "gymmesh.agent.v1.AgentService"
DISCOVERY = "gymmesh.discovery.v1.DiscoveryService"


def replaying(tmp_path: Path) -> dict[str, ModelConfig]:
    path = tmp_path / "recorded.jsonl"
    path.write_text(json.dumps({"match": "*", "answers": [{"text": "4"}]}) + "\n")
    return {"policy": ModelConfig(backend="replay", path=str(path))}


async def test_every_service_is_there_and_listed(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with embedded(MeshConfig(models=replaying(tmp_path))) as mesh:
        assert mesh.defaults.agent == "tool_loop"
        agent = await mesh.directory.pick(AGENT, "tool_loop")
        about = await mesh.directory.peer(agent).GetAgent(agent_pb2.GetAgentRequest(), timeout=60)
        assert about.name == "tool_loop"
        registry = mesh.directory.peer(await mesh.directory.pick(DISCOVERY, "registry"))
        page = await registry.ListInstances(discovery_pb2.ListInstancesRequest(), timeout=60)
        assert [one.name for one in page.instances] == ["tool_loop", "math", "policy"]
        assert mesh.directory.open_addresses() == []  # nothing goes over a socket
    assert {task for task in asyncio.all_tasks() - before if not task.done()} == set()


async def test_one_that_cannot_open_closes_the_others(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    config = MeshConfig(
        models=replaying(tmp_path),
        environments={"mathe": EnvironmentConfig(use="mathe")},
        defaults=Defaults(environment="mathe"),
    )
    with pytest.raises((MeshError, ConfigError, ValueError), match="mathe") as caught:
        async with embedded(config):
            pytest.fail("it should not have opened")
    assert "\n" not in str(caught.value)
    assert {task for task in asyncio.all_tasks() - before if not task.done()} == set()


async def test_two_meshes_in_one_process_do_not_meet(tmp_path: Path) -> None:
    config = MeshConfig(models=replaying(tmp_path))
    async with embedded(config) as one, embedded(config) as two:
        assert one.directory.instances() == two.directory.instances()
        assert one.directory is not two.directory
