"""How soon no client calls an instance that Consul finds critical.

A real Consul agent, a discovery service over it that is an xDS control plane, and gRPC channels
that are called on steadily. In two ways: a check that fails at once, and a process that is killed,
which Consul's own gRPC health check finds out.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc

from gymmesh_discovery.backends.consul.entry import check_id, registration, service_name
from tests.consul.agent import Agent, running
from tests.scale.xds_bench.streams import Callers, Stream, calling
from tests.unit.runtime.probe import until
from tests.xds.plane import MODEL, Model, models

_PREFIX: Final = "gymmesh"
_LEASE: Final = "bench"
_BOUND_S: Final = 60.0
_TTL: Final = {"Name": "gymmesh", "TTL": "600s"}  # longer than the bench: it expires never


@dataclass(frozen=True, slots=True)
class Death:
    """An instance that was killed; seconds from the signal. ``lost``: calls that found nobody."""

    last_call_s: float
    critical_s: float
    told_s: float
    lost: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds from a failed check to the last call, and what came of each kill."""

    failed_s: list[float]
    deaths: list[Death]


async def measure(binary: str, times: int) -> Figures:
    """All figures, over a Consul of its own."""
    async with running(binary) as consul, _control_plane(consul.address) as plane:
        return Figures(await _failed(consul, plane, times), await _killed(consul, plane, times))


async def _failed(consul: Agent, plane: str, times: int) -> list[float]:
    """From the call that fails an instance's TTL check until the last call that is sent there."""
    waits: list[float] = []
    async with models("failed", "a", "b", "c") as started:
        for one in started:
            await _register(consul, one)
        async with calling(plane, "xds:///model.failed") as callers:
            await until(lambda: len(callers.sent) == len(started))
            for number in range(times):
                who = started[number % len(started)].id
                began = time.monotonic()
                await _say(consul, "fail", who)
                waits.append(max(0.0, await callers.last_to(who) - began))
                await _say(consul, "pass", who)
                await callers.reach(who)
    return waits


async def _killed(consul: Agent, plane: str, times: int) -> list[Death]:
    """An instance that registered by itself is killed, beside two that stay."""
    deaths: list[Death] = []
    async with models("killed", "stays-0", "stays-1") as started:
        for one in started:
            await _register(consul, one)
        async with calling(plane, "xds:///model.killed") as callers, _told(plane) as stream:
            await until(lambda: len(callers.sent) == len(started))
            for number in range(times):
                deaths.append(await _kill(consul, callers, stream, f"dies-{number}"))
    return deaths


async def _kill(consul: Agent, callers: Callers, stream: Stream, who: str) -> Death:
    """Starts one, kills it once it is called, and follows what comes of that."""
    async with _process("tests.scale.xds_bench.instance", consul.address, "killed", who) as found:
        process, address = found
        port = int(address.rpartition(":")[2])
        await callers.reach(who)
        await until(lambda: port in stream.healthy())
        lost = len(callers.lost)
        killed = time.monotonic()
        process.send_signal(signal.SIGKILL)
        critical = await _critical(consul, who)
        await until(lambda: port not in stream.healthy())
        told = stream.versions[-1][1]
        answered = await callers.last_to(who)
    calls = callers.lost[lost:]
    last = max([answered, *calls])
    return Death(max(0.0, last - killed), critical - killed, told - killed, len(calls))


async def _critical(consul: Agent, who: str) -> float:
    """When Consul says that an instance is critical, by a blocking query of our own."""
    name, index = service_name(_PREFIX, MODEL, "killed"), "0"
    url = f"http://{consul.address}/v1/health/service/{name}"
    async with aiohttp.ClientSession() as http, asyncio.timeout(_BOUND_S):
        while True:
            async with http.get(url, params={"index": index, "wait": "30s"}) as answer:
                answer.raise_for_status()
                index, entries = answer.headers["X-Consul-Index"], await answer.json()
            heard = time.monotonic()
            for entry in entries:
                statuses = {check["Status"] for check in entry["Checks"]}
                if entry["Service"]["ID"] == who and "critical" in statuses:
                    return heard


async def _register(consul: Agent, one: Model) -> None:
    """Registers an instance by hand, with a check that says what it is told."""
    body: dict[str, Any] = registration(one.instance, _PREFIX, _LEASE, _TTL)
    await consul.put("/v1/agent/service/register", body)


async def _say(consul: Agent, verb: str, who: str) -> None:
    """Passes or fails the check of one that was registered by hand."""
    await consul.put(f"/v1/agent/check/{verb}/{quote(check_id(who, _LEASE), safe='')}")


@asynccontextmanager
async def _told(plane: str) -> AsyncIterator[Stream]:
    """A bare stream of the control plane, which notes when it is told."""
    async with grpc.aio.insecure_channel(plane) as channel:
        stub: Any = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
        stream = Stream(stub.StreamAggregatedResources())
        async with asyncio.TaskGroup() as group:
            following = group.create_task(stream.follow("model.killed"))
            await until(lambda: stream.last is not None)
            try:
                yield stream
            finally:
                following.cancel()


@asynccontextmanager
async def _control_plane(consul: str) -> AsyncIterator[str]:
    """The discovery service in a process of its own; gives its address."""
    async with _process("tests.scale.bench_xds", "--serve", "--over", consul) as (_, address):
        yield address


@asynccontextmanager
async def _process(module: str, *args: str) -> AsyncIterator[tuple[subprocess.Popen[str], str]]:
    """A process of ours that has said its address; it is killed in the end."""
    # By Popen: the event loop would fork, which gRPC says it cannot follow.
    process = await asyncio.to_thread(
        subprocess.Popen, [sys.executable, "-m", module, *args], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), _BOUND_S)
        if not line:
            raise RuntimeError(f"{module} ended with {await asyncio.to_thread(process.wait)}")
        yield process, line.strip()
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
