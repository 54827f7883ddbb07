"""Servers of grpc-go and grpc-java, as they come, keep the connection of our Python client.

Both close a connection ("too many pings") after a few pings that came less than five minutes
apart, without a call between. The client holds a connection for more than two minutes, idle between
two calls, through a proxy that counts connections. A client that pings every 20 seconds, as among
our own services, goes beside it and shows that these servers do close.

These tests take minutes, and are collected when asked for: `make test-keepalive`.
"""

from __future__ import annotations

import asyncio
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.wire.options import KEEPALIVE_KEY, KEEPALIVE_S
from tests.clients.conftest import LANGUAGES
from tests.clients.programs import CLIENTS
from tests.clients.services import service
from tests.support.proxy import Proxy

_START_S: Final = 60.0
_CALL_S: Final = 60.0
#: Between two calls: a client that pings every 20 s has pinged seven times. Both servers take the
#: first ping as it is, and close at the third that comes too early.
_IDLE_S: Final = 150.0
_JAVA: Final = CLIENTS / "java/target"

_SERVERS: Final = [one for one in LANGUAGES if one in ("go", "java")]


@asynccontextmanager
async def _java_agent() -> AsyncIterator[str]:
    """The address of a grpc-java server, of which nothing is set."""
    libraries = (_JAVA / "classpath").read_text()
    process = await asyncio.create_subprocess_exec(
        *("java", "-Xmx256m", "-cp", f"{_JAVA / 'test-classes'}:{_JAVA / 'classes'}:{libraries}"),
        "io.gymmesh.client.FakeAgentProgram",
        stdin=PIPE,
        stdout=PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_START_S):
            address = (await process.stdout.readline()).decode().strip()
        yield address
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class _Caller:
    """Our client, over a proxy that counts its connections."""

    def __init__(self, name: str, proxy: Proxy, peer: Any) -> None:
        self.name = name
        self._proxy = proxy
        self._peer = peer

    @property
    def connections(self) -> int:
        """How many were made."""
        return self._proxy.connections

    async def call(self, language: str) -> None:
        """One call, which must succeed."""
        if language == "go":
            environment = resource_pb2.GetEnvironmentRequest()
            assert (await self._peer.GetEnvironment(environment, timeout=_CALL_S)).name
        else:
            agent = agent_pb2.GetAgentRequest()
            assert (await self._peer.GetAgent(agent, timeout=_CALL_S)).name


async def _caller(
    stack: AsyncExitStack, name: str, address: str, language: str, meta: dict[str, str]
) -> _Caller:
    """``meta``: what a registration says of the server."""
    proxy = await stack.enter_async_context(Proxy(int(address.rpartition(":")[2])))
    kind = "resource.v1.ResourceService" if language == "go" else "agent.v1.AgentService"
    instance = discovery_pb2.Instance(
        id=f"{language}-0",
        service=f"gymmesh.{kind}",
        name=language,
        address=proxy.address,
        health=discovery_pb2.HEALTH_SERVING,
        meta=meta,
    )
    directory = PeerDirectory(transport="plain")
    stack.push_async_callback(directory.close)
    directory.upsert(instance)
    return _Caller(name, proxy, directory.peer(instance))


@pytest.mark.parametrize("language", _SERVERS)
async def test_a_connection_is_kept(language: str) -> None:
    async with AsyncExitStack() as stack:
        if language == "go":
            address = (await stack.enter_async_context(service("go"))).address
        else:
            address = await stack.enter_async_context(_java_agent())
        often = {KEEPALIVE_KEY: str(KEEPALIVE_S)}
        ours = await _caller(stack, "as servers allow", address, language, {})
        pinging = await _caller(stack, "every 20 s", address, language, often)
        began = time.monotonic()
        await _calls((ours, pinging), language)
        await asyncio.sleep(_IDLE_S)
        await _calls((ours, pinging), language)
        held = time.monotonic() - began
    for one in (ours, pinging):
        print(f"{language}, pings {one.name}: {one.connections} connections in {held:.0f} s")
    assert held > 120
    assert ours.connections == 1
    assert pinging.connections > 1, "this server does not mind pings; the test shows nothing"


async def _calls(callers: Sequence[_Caller], language: str) -> None:
    await asyncio.gather(*(one.call(language) for one in callers))
