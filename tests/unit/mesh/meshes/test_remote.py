"""A mesh elsewhere, reached at the addresses of its agents."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh_client import run_attempt
from gymmesh_client.collect_stream import check_contract
from gymmesh_mesh import remote
from gymmesh_runtime.errors import MeshError
from tests.support.collecting import CollectAgent, ask, serve_agent


async def test_agents_of_several_meshes_share_the_work_also_when_they_have_one_id() -> None:
    agents = [CollectAgent(), CollectAgent()]
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(serve_agent(one)) for one in agents]
        addresses = [f"127.0.0.1:{port}" for port in ports]
        mesh = await stack.enter_async_context(remote(addresses))
        assert mesh.defaults.agent == "scripted"
        assert len(mesh.directory.instances()) == 2

        async def attempt(number: int) -> object:
            request: agent_pb2.RunRolloutRequest = ask(number, agent="scripted")
            return await run_attempt(mesh.agents.connect, request, repeat_index=0, timeout_s=20.0)

        await asyncio.gather(*(attempt(number) for number in range(10)))
        assert [len(one.requests) for one in agents] == [5, 5]


def test_an_agent_of_another_major_version_is_refused() -> None:
    for theirs in ("", "1.0", "1.99"):  # one that does not say is taken for one of ours
        check_contract(theirs, "h:1")
    with pytest.raises(MeshError, match=r"the agent at h:1 uses contract version '2\.0'"):
        check_contract("2.0", "h:1")
