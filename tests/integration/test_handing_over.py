"""Services that go down while others take over: what callers hold here may end first."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import Any

import pytest

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_discovery.service import DiscoveryService
from gymmesh_resource import Environment, EnvironmentConfig, ResourceService, Rollout, Session, tool
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory, TransportName
from gymmesh_runtime.serve import ServeOptions, serving
from tests.conformance.stopping import stoppable
from tests.unit.runtime.probe import DISCOVERY, instance_at, until
from tests.unit.runtime.registry import registering

RESOURCE = "gymmesh.resource.v1.ResourceService"
BOUND_S = 240.0


class Notebook(Environment[list[str]]):
    """A notebook that a session writes into."""

    state = list

    @tool
    def write(self, session: Session[list[str]], word: str) -> str:
        """Write a word."""
        session.state.append(word)
        return " ".join(session.state)

    def verify(self, session: Session[list[str]], rollout: Rollout) -> float:
        return 1.0


def notebook() -> ResourceService:
    return ResourceService(EnvironmentConfig(), "notes", "notes-0", environment=Notebook())


class Caller:
    """What an agent does with a session."""

    def __init__(self, peer: Any) -> None:
        self._peer = peer
        self.session_id = ""

    async def open(self, request_id: str) -> None:
        task = rollout_pb2.Task(task_id="t", environment="notes", payload_json=b"{}")
        request = resource_pb2.CreateSessionRequest(task=task, request_id=request_id)
        opened = await self._peer.CreateSession(request, timeout=BOUND_S)
        self.session_id = opened.session_id

    async def write(self, word: str) -> bytes:
        request = resource_pb2.CallToolRequest(
            session_id=self.session_id,
            name="write",
            arguments=f'{{"word": "{word}"}}'.encode(),
            request_id=word,
        )
        answer = await self._peer.CallTool(request, timeout=BOUND_S)
        text: bytes = answer.text
        return text

    async def close(self) -> None:
        request = resource_pb2.CloseSessionRequest(session_id=self.session_id)
        await self._peer.CloseSession(request, timeout=BOUND_S)


@pytest.mark.parametrize("transport", ["auto", "plain"])
async def test_an_environment_goes_when_its_sessions_have_ended(transport: TransportName) -> None:
    directory = PeerDirectory(transport=transport)
    async with registering() as (registry, backend):
        options = ServeOptions(
            metrics_port=None, drain_s=300.0, hands_over=True, discovery_address=registry
        )
        async with stoppable(serving(notebook(), options)) as (served, stop):
            caller = Caller(directory.peer(served.instance))
            await caller.open("first")
            assert await caller.write("one") == b"one"
            await stop()
            listed = backend.snapshot(RESOURCE, "")[1]
            await until(lambda: backend.snapshot(RESOURCE, "")[1] != listed)
            assert backend.snapshot(RESOURCE, "")[1][0].health == discovery_pb2.HEALTH_DRAINING
            # Nothing new begins soon, and what runs goes on as if nothing were.
            refused = await _refused(directory.peer(served.instance))
            assert refused.reason == errors_pb2.ERROR_REASON_DRAINING
            assert await caller.write("two") == b"one two"
            await caller.close()
            await until(lambda: not backend.snapshot(RESOURCE, "")[1], BOUND_S)
    await directory.close()


async def _refused(peer: Any) -> MeshError:
    """The error of opening a session, once that is refused; the registry says so before."""
    for attempt in range(10_000):
        late = Caller(peer)
        try:
            await late.open(f"late-{attempt}")
        except MeshError as error:
            return error
        await late.close()
    raise AssertionError("sessions are opened for ever")


async def test_several_environments_of_a_process_let_go_at_once() -> None:
    directory = PeerDirectory()
    both = [
        ResourceService(EnvironmentConfig(), name, f"{name}-0", environment=Notebook())
        for name in ("notes", "more")
    ]
    options = ServeOptions(metrics_port=None, drain_s=300.0, hands_over=True)
    async with stoppable(serving(both, options)) as (served, stop):
        first, second = (directory.peer(one) for one in served.instances)
        holding = Caller(first)
        await holding.open("first")
        await stop()
        for peer in (first, second):
            refused = await _refused(peer)
            assert refused.reason == errors_pb2.ERROR_REASON_DRAINING
        await holding.close()
    await directory.close()


async def test_a_session_that_nobody_closes_is_waited_for_within_bounds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    directory = PeerDirectory()
    options = ServeOptions(metrics_port=None, drain_s=0.5, hands_over=True)
    with caplog.at_level(logging.WARNING, "gymmesh.serve"):
        async with asyncio.timeout(BOUND_S), serving(notebook(), options) as served:
            await Caller(directory.peer(served.instance)).open("first")
    assert "notes-0 stops although it has open sessions" in caplog.text
    await directory.close()


async def test_where_nobody_takes_over_sessions_are_not_waited_for() -> None:
    directory = PeerDirectory()
    options = ServeOptions(metrics_port=None, drain_s=3600.0)
    async with asyncio.timeout(BOUND_S), serving(notebook(), options) as served:
        await Caller(directory.peer(served.instance)).open("first")
    await directory.close()


@pytest.mark.parametrize("transport", ["auto", "plain"])
async def test_who_watches_a_registry_is_sent_to_the_next_one_at_once(
    transport: TransportName,
) -> None:
    directory = PeerDirectory(transport=transport)
    options = ServeOptions(metrics_port=None, drain_s=3600.0)
    async with stoppable(serving(DiscoveryService("registry-0"), options)) as (served, stop):
        peer: Any = directory.peer(instance_at(served.instance.address, service=DISCOVERY))
        watch = peer.WatchInstances(discovery_pb2.WatchInstancesRequest(), timeout=3600.0)
        async with asyncio.timeout(BOUND_S), aclosing(watch) as changes:
            assert (await anext(changes)).WhichOneof("change") == "snapshot"
            await stop()
            with pytest.raises(MeshError) as ended:
                await anext(changes)
        assert ended.value.reason == errors_pb2.ERROR_REASON_DRAINING
    await directory.close()
