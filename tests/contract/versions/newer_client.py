"""A client of the next minor version, for a mesh of this one.

    python -m tests.contract.versions.newer_client AGENT REGISTRY

Run with the next stubs first in PYTHONPATH. Prints what came of each call as a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import grpc

from gymmesh.agent.v1 import agent_pb2, agent_pb2_grpc
from gymmesh.discovery.v1 import discovery_pb2, discovery_pb2_grpc
from tests.support.rollouts import make_task

# Of the next contract, which the types of this one do not know.
agent: Any = agent_pb2
discovery: Any = discovery_pb2
S = 20.0


def _request() -> Any:
    task: Any = make_task(wanted={"apple": 1})
    task.environment = task.agent = ""
    task.environment, task.importance = "shop", 0.5
    options = agent.RolloutOptions(mood="curious", max_steps=2)
    return agent.RunRolloutRequest(task=task, rollout_id="newer-1", attempt=1, options=options)


async def _hello(stub: Any, version: str) -> str:
    call = stub.Collect(timeout=S)
    hello = agent.CollectHello(stream_id=f"s-{version}", credit=10, contract_version=version)
    await call.write(agent.CollectRequest(hello=hello))
    try:
        welcome = await call.read()
        return f"welcomed by {welcome.welcome.contract_version}"
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    finally:
        call.cancel()


async def main(agent_address: str, registry: str) -> None:
    """Makes the calls."""
    said: dict[str, Any] = {}
    async with grpc.aio.insecure_channel(agent_address) as channel:
        stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
        kinds = [reply.event.WhichOneof("event") async for reply in stub.RunRollout(_request())]
        said["rollout"] = [kinds[0], kinds[-1]]
        try:
            await stub.DescribeAgent(agent.DescribeAgentRequest(), timeout=S)
        except grpc.aio.AioRpcError as error:
            said["added_method"] = error.code().name
        for version in ("1.1", "1.0", "", "2.0"):
            said[f"hello {version}"] = await _hello(stub, version)
    async with grpc.aio.insecure_channel(registry) as channel:
        instance = discovery.Instance(
            id="newer",
            service="gymmesh.agent.v1.AgentService",
            name="newer",
            address="127.0.0.1:1",
            contract_version="1.1",
            health=discovery.HEALTH_TIRED,
        )
        finder: Any = discovery_pb2_grpc.DiscoveryServiceStub(channel)
        try:
            await finder.Register(discovery.RegisterRequest(instance=instance), timeout=S)
        except grpc.aio.AioRpcError as error:
            said["added_health"] = error.code().name
        instance.health = discovery.HEALTH_SERVING
        await finder.Register(discovery.RegisterRequest(instance=instance), timeout=S)
        listed = await finder.ListInstances(discovery.ListInstancesRequest(name="newer"), timeout=S)
        said["listed"] = [one.contract_version for one in listed.instances]
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
