"""Whom an agent calls follows the directory, though the only one of a name is remembered."""

from __future__ import annotations

import pytest

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_agent.model_caller import Models
from gymmesh_agent.peers import MODEL_SERVICE, RESOURCE_SERVICE
from gymmesh_agent.session import Environments
from gymmesh_runtime.peers import PeerDirectory


def instance(
    service: str,
    instance_id: str,
    health: discovery_pb2.Health.ValueType = discovery_pb2.HEALTH_SERVING,
) -> discovery_pb2.Instance:
    return discovery_pb2.Instance(
        id=instance_id,
        service=service,
        name="one",
        address=f"{instance_id}:1",
        health=health,
        weight=1,
    )


@pytest.fixture
def directory() -> PeerDirectory:
    return PeerDirectory()


async def test_environments(directory: PeerDirectory) -> None:
    environments = Environments(directory, 1.0, 1.0)

    def chosen() -> set[str]:
        sites = [environments.choose("one", f"r{number}") for number in range(50)]
        return {site.instance_id for site in sites if site is not None}

    assert chosen() == set()
    directory.upsert(instance(RESOURCE_SERVICE, "a"))
    assert chosen() == {"a"}
    directory.upsert(instance(RESOURCE_SERVICE, "b"))
    assert chosen() == {"a", "b"}
    directory.upsert(instance(RESOURCE_SERVICE, "a", discovery_pb2.HEALTH_DRAINING))
    assert chosen() == {"b"}
    directory.replace([instance(RESOURCE_SERVICE, "c")])
    assert chosen() == {"c"}
    directory.remove("c")
    assert chosen() == set()


async def test_models(directory: PeerDirectory) -> None:
    models = Models(directory, 1.0)

    def chosen() -> set[str]:
        found = [models.choose("one", f"r{number}") for number in range(50)]
        return {one.id for one in found if one is not None}

    assert chosen() == set()
    directory.upsert(instance(MODEL_SERVICE, "a"))
    assert chosen() == {"a"}
    directory.upsert(instance(MODEL_SERVICE, "b"))
    assert chosen() == {"a", "b"}
    directory.remove("a")
    assert chosen() == {"b"}
    assert models.choose("two", "r") is None
