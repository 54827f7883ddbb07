"""What services say of themselves in the registry, and how it follows what they become."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gymmesh.model.v1 import model_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.service import AgentService
from gymmesh_discovery.backends.memory import MemoryRegistry
from gymmesh_model.config import ModelConfig
from gymmesh_model.service import ModelService
from gymmesh_resource import EnvironmentConfig, ResourceService
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serve import Served, ServeOptions, serving
from gymmesh_runtime.serving.directory_watch import DirectoryWatch
from gymmesh_runtime.serving.service import Service
from tests.unit.runtime.probe import DISCOVERY, instance_at, until
from tests.unit.runtime.registry import registering

MODEL = "gymmesh.model.v1.ModelService"


def policy(folder: Path) -> ModelService:
    path = folder / "recorded.jsonl"
    path.write_text(json.dumps({"match": "*", "answers": [{"text": "4"}]}) + "\n")
    config = ModelConfig(backend="replay", path=str(path), max_concurrency=7)
    return ModelService(config, "policy", "policy-0")


@asynccontextmanager
async def registered(service: Service) -> AsyncIterator[tuple[Served, MemoryRegistry, str]]:
    async with registering() as (address, backend):
        options = ServeOptions(metrics_port=None, discovery_address=address, drain_s=1.0)
        async with serving(service, options) as served:
            yield served, backend, address


def meta_of(backend: MemoryRegistry) -> dict[str, str]:
    (one,) = backend.snapshot("", "")[1]
    return dict(one.meta)


async def set_version(peer: Any, version: int) -> None:
    await peer.SetWeightsVersion(model_pb2.SetWeightsVersionRequest(version=version), timeout=30.0)


async def test_the_version_of_the_weights_is_followed(tmp_path: Path) -> None:
    directory = PeerDirectory()
    async with registered(policy(tmp_path)) as (served, backend, address):
        assert meta_of(backend) == {"capacity": "7", "keepalive_s": "20"}
        watched = PeerDirectory(watched=True)
        registry: Any = directory.peer(instance_at(address, service=DISCOVERY))
        watch = DirectoryWatch(registry, watched)
        watch.start()
        peer = directory.peer(served.instance)
        for version in (3, 4, 4, 9):
            await set_version(peer, version)
        # Sooner than the lease is renewed by itself: every five seconds.
        await until(lambda: meta_of(backend).get("weights_version") == "9")
        await until(
            lambda: (
                [one.meta["weights_version"] for one in watched.serving(MODEL, "policy")] == ["9"]
            )
        )
        assert meta_of(backend)["capacity"] == "7"
        assert len(backend.snapshot("", "")[1]) == 1
        await watch.stop()
        await watched.close()
        # Renewals go on under the new lease.
        (before,) = backend.snapshot("", "")[1]
        await set_version(peer, 10)
        await until(lambda: meta_of(backend).get("weights_version") == "10")
        assert before.address == served.instance.address
    await directory.close()


async def test_what_the_others_say(tmp_path: Path) -> None:
    environments = [
        (EnvironmentConfig(session_limit=0), {}),  # no limit
        (EnvironmentConfig(session_limit=5), {"capacity": "5"}),
    ]
    for config, expected in environments:
        async with registered(ResourceService(config, "math", "math-0")) as (_, backend, _address):
            assert meta_of(backend) == {**expected, "keepalive_s": "20"}
    async with registered(AgentService(AgentConfig(), "tool_loop", "tool_loop-0")) as one:
        assert meta_of(one[1]) == {"capacity": "16384", "keepalive_s": "20"}
