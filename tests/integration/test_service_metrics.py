"""What the services and the collector measure beside rollouts: waits, endings, how far they are."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_discovery.backends.memory import MemoryRegistry
from gymmesh_discovery.service import DiscoveryService
from gymmesh_model import ModelService
from gymmesh_resource.sandbox import Limits, Program
from gymmesh_resource.sandbox.unsandboxed import UnsandboxedPrograms
from gymmesh_resource.workers import ProcessPool, WorkerCrashed, WorkerTimeout
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.peers import PeerDirectory
from tests.integration.test_model_service import ask, request
from tests.integration.test_model_service_faults import configured
from tests.support import endpoint as fake
from tests.support.endpoint import FakeEndpoint
from tests.support.rollouts import ScriptedAgent, failed, make_events
from tests.support.scraping import Counted, samples
from tests.unit.client.test_collect import collector, good, tasks
from tests.unit.runtime.probe import until

BOUND_S = 240.0


@pytest.fixture
async def server() -> AsyncIterator[FakeEndpoint]:
    async with FakeEndpoint() as running:
        yield running


def now(name: str, **labels: str) -> float:
    return samples()[name, frozenset(labels.items())]


async def test_calls_that_wait_for_a_place_and_the_first_token(server: FakeEndpoint) -> None:
    gate = asyncio.Event()
    server.default = fake.cut(None, "end", gate, content="four")
    counted = Counted()
    service = ModelService(configured("chat", server, max_concurrency=1), "queued", "queued-0")
    await service.open(PeerDirectory())
    try:
        call = model_pb2.StreamResponseRequest(call=request(rollout_id="r-1"))
        async with asyncio.timeout(BOUND_S):
            context = CallContext("StreamResponse")
            async with aclosing(service.StreamResponse(call, context)) as frames:
                assert (await anext(frames)).delta.text
                waiting = asyncio.create_task(ask(service))
                await until(lambda: now("gymmesh_model_waiting", model="queued") == 1)
                server.default = fake.text("4")
                gate.set()
                assert [frame async for frame in frames][-1].HasField("completed")
            await waiting
        await service.SetWeightsVersion(
            model_pb2.SetWeightsVersionRequest(version=7), CallContext("SetWeightsVersion")
        )
    finally:
        await service.close()
    assert now("gymmesh_model_waiting", model="queued") == 0
    assert counted.of("gymmesh_model_first_token_seconds_count", model="queued") == 1
    assert counted.of("gymmesh_model_call_seconds_count", model="queued") == 2
    assert now("gymmesh_model_weights_version", model="queued") == 7


async def test_how_programs_end() -> None:
    counted = Counted()
    sandbox = UnsandboxedPrograms(concurrency=1)
    await sandbox.open()
    assert counted.of("gymmesh_sandbox_places") == 1

    def python(code: str) -> Program:
        return Program(("{python}", "-c", code))

    async def busy() -> None:
        async with sandbox.start(python("input()"), Limits()):
            assert counted.of("gymmesh_sandbox_places_busy") == 1
            entered.set()
            await leave.wait()

    entered, leave = asyncio.Event(), asyncio.Event()
    try:
        async with asyncio.timeout(BOUND_S):
            stopped = asyncio.create_task(busy())
            await entered.wait()
            exits = asyncio.create_task(sandbox.run(python("print(1)"), Limits()))
            await asyncio.sleep(0)
            leave.set()
            await stopped
            await exits
            hangs = python("import time; time.sleep(600)")
            await sandbox.run(hangs, Limits(wall_s=0.2))
            await sandbox.run(python("print('x' * 10_000)"), Limits(output_bytes=100))
    finally:
        await sandbox.close()
    endings = counted.by("gymmesh_sandbox_endings_total", "ending")
    assert endings == {"stopped": 1, "exited": 1, "timed_out": 1, "output_limit": 1}
    assert counted.by("gymmesh_sandbox_starts_total", "start") == {"cold": 4}
    assert counted.of("gymmesh_sandbox_wait_seconds_count") == 1
    assert not counted.of("gymmesh_sandbox_places")
    assert not counted.of("gymmesh_sandbox_places_busy")


async def test_worker_processes_that_are_waited_for_and_lost() -> None:
    counted, kills_total = Counted(), "gymmesh_worker_kills_total"
    async with ProcessPool(workers=1) as pool:
        assert counted.of("gymmesh_workers") == 1
        # There from the start, so that the first loss shows as growth.
        causes = {dict(key[1])["cause"] for key in samples() if key[0] == kills_total}
        assert causes == {"cancelled", "timeout", "crashed"}
        async with asyncio.timeout(BOUND_S):
            results = await asyncio.gather(
                pool.run(time.sleep, 30.0, timeout=0.1),
                pool.run(sys.exit, 3, timeout=BOUND_S),
                return_exceptions=True,
            )
    assert [type(one) for one in results] == [WorkerTimeout, WorkerCrashed]
    kills = counted.by(kills_total, "cause")
    assert kills == {"timeout": 1, "crashed": 1}
    assert counted.of("gymmesh_worker_wait_seconds_count") == 1
    assert not counted.of("gymmesh_workers")
    assert not counted.of("gymmesh_workers_busy")


async def test_leases_that_run_out_and_watches() -> None:
    clock = [0.0]
    backend = MemoryRegistry(lambda: clock[0])
    service = DiscoveryService("registry-0", backend)
    counted = Counted()
    instance = discovery_pb2.Instance(
        id="a",
        service="gymmesh.agent.v1.AgentService",
        name="x",
        address="h:1",
        health=discovery_pb2.HEALTH_SERVING,
    )
    await backend.register(instance, 15, "")
    watch = service.WatchInstances(
        discovery_pb2.WatchInstancesRequest(), CallContext("WatchInstances")
    )
    async with asyncio.timeout(BOUND_S), aclosing(watch) as changes:  # type: ignore[type-var]
        assert (await anext(changes)).snapshot.instances
        assert counted.of("gymmesh_registry_watches") == 1
        clock[0] = 1000.0
        backend.sweep()
        assert (await anext(changes)).removed_id == "a"
    assert counted.of("gymmesh_registry_watches") == 0
    assert counted.of("gymmesh_registry_expired_total") == 1


async def test_instances_by_service_and_health() -> None:
    backend = MemoryRegistry()
    instance = discovery_pb2.Instance(
        id="a",
        service="gymmesh.agent.v1.AgentService",
        name="x",
        address="h:1",
        health=discovery_pb2.HEALTH_SERVING,
    )
    key = ("gymmesh_instances", frozenset({("service", instance.service), ("health", "serving")}))
    lease_id, _ = await backend.register(instance, 15, "")
    await backend.open()
    try:
        await until(lambda: samples().get(key) == 1)
        await backend.deregister(lease_id)
        await until(lambda: key not in samples())
    finally:
        await backend.close()


async def test_a_run(tmp_path: Path) -> None:
    def mixed(asked: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
        if asked.rollout_id.endswith("-1"):
            return make_events(
                asked.rollout_id, asked.attempt, failed(retry_safe=asked.attempt == 1)
            )
        return good(asked)

    counted = Counted()
    run, _ = collector(tmp_path, ScriptedAgent(mixed), repeats=2, hand_out=3)
    async with asyncio.timeout(BOUND_S):
        going = asyncio.create_task(run.run(tasks(3)))
        groups = [group async for group in run.groups()]
        tally = await going
    assert len(groups) == 3
    outcomes = counted.by("gymmesh_collector_rollouts_total", "outcome")
    assert outcomes == {"completed": 3, "failed": 3}
    assert counted.by("gymmesh_collector_rollouts_total", "boundary", outcome="failed") == (
        {"MODEL": 3}
    )
    assert counted.of("gymmesh_collector_retries_total", boundary="MODEL") == 3
    assert counted.of("gymmesh_collector_tokens_total", direction="output") == tally.output_tokens
    assert counted.by("gymmesh_groups_total", "event") == {"finished": 3, "acknowledged": 3}
    assert counted.of("gymmesh_journal_commit_seconds_count") > 0
    assert now("gymmesh_collector_in_flight") == 0
    assert now("gymmesh_groups_waiting") == 0
    assert now("gymmesh_collector_concurrency") == run.options.concurrency
