"""Where the connections of a sandbox's relay go."""

from __future__ import annotations

import pytest

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_sandbox.relay import relay_target
from gymmesh_sandbox_access import RolloutAgent

AGENT = "gymmesh.agent.v1.AgentService"


def agent(
    instance_id: str,
    gateway: str,
    health: discovery_pb2.Health.ValueType = discovery_pb2.HEALTH_SERVING,
) -> discovery_pb2.Instance:
    """An instance of the agent `coder`."""
    return discovery_pb2.Instance(
        id=instance_id,
        service=AGENT,
        name="coder",
        address="10.0.0.1:9400",
        meta={"gateway": gateway} if gateway else {},
        health=health,
    )


async def test_programs_of_an_agent_that_drains_still_reach_its_gateway() -> None:
    """What runs there goes on, at the same instance."""
    directory = PeerDirectory()
    target = relay_target(directory, RolloutAgent("coder", "coder-1").network().relay)
    directory.upsert(agent("coder-1", "10.0.0.1:9402"))
    directory.upsert(agent("coder-2", "10.0.0.2:9402"))
    assert target() == "10.0.0.1:9402"
    directory.upsert(agent("coder-1", "10.0.0.1:9402", discovery_pb2.HEALTH_DRAINING))
    assert target() == "10.0.0.1:9402"


@pytest.mark.parametrize("instance", [None, agent("coder-1", "")], ids=["gone", "no gateway"])
async def test_there_is_no_address_without_such_an_instance_or_gateway(
    instance: discovery_pb2.Instance | None,
) -> None:
    directory = PeerDirectory()
    directory.upsert(agent("coder-2", "10.0.0.2:9402"))
    if instance is not None:
        directory.upsert(instance)
    target = relay_target(directory, RolloutAgent("coder", "coder-1").network().relay)
    with pytest.raises(MeshError) as caught:
        target()
    assert caught.value.reason == errors_pb2.ERROR_REASON_SERVICE_NOT_FOUND
