"""What the xDS control plane costs, and how soon clients follow the registry.

    python tests/scale/bench_xds.py [--endpoints N] [--streams N] [--changes N] [--write]

The control plane runs in a process of its own and is told of changes as services tell it, over
DiscoveryService. The clients are bare ADS streams, each over a connection of its own, and a few
gRPC channels that call instances found through xDS. ``--write`` puts the figures into
docs/performance.md. Exits 1 when a push takes longer than the target or a client is stale.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
from envoy.config.core.v3 import health_check_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh.discovery.v1 import discovery_pb2_grpc
from gymmesh_cli.xds import document
from gymmesh_discovery.service import DiscoveryService
from gymmesh_discovery.xds.names import CLUSTER, ENDPOINTS, LISTENER, ROUTE
from gymmesh_discovery.xds.servicer import XdsEdge
from gymmesh_runtime.loop import run
from gymmesh_runtime.serve import Served, ServeOptions, serve
from tests.scale.report import machine, table, write_section
from tests.unit.runtime.probe import until
from tests.xds.plane import MODEL, ask, models

TARGET_S: Final = 0.2
_BOUND_S: Final = 60.0
_SPARED: Final = 200  # changes one at a time
_CHANNELS: Final = 4
_DRAINS: Final = 40


@dataclass
class Stream:
    """A client that reads what it is sent, and notes when."""

    call: Any
    versions: list[tuple[int, float]] = field(default_factory=list)
    last: Any = None

    async def follow(self, name: str) -> None:
        """Subscribes as gRPC does, and acknowledges."""
        for type_url in (LISTENER, ROUTE, CLUSTER, ENDPOINTS):
            await self.call.write(
                discovery_pb2.DiscoveryRequest(type_url=type_url, resource_names=[name])
            )
        while (response := await self.call.read()) is not grpc.aio.EOF:
            if response.type_url == ENDPOINTS:
                self.versions.append((int(response.version_info), time.monotonic()))
                self.last = response
            ack = discovery_pb2.DiscoveryRequest(
                type_url=response.type_url, resource_names=[name],
                version_info=response.version_info, response_nonce=response.nonce,
            )  # fmt: skip
            await self.call.write(ack)

    def healthy(self) -> set[int]:
        """The ports of the endpoints that take calls, as it knows them."""
        found = endpoint_pb2.ClusterLoadAssignment.FromString(self.last.resources[0].value)
        return {
            one.endpoint.address.socket_address.port_value
            for place in found.endpoints
            for one in place.lb_endpoints
            if one.health_status == health_check_pb2.HEALTHY
        }


class Plane:
    """The control plane's process, and calls to its registry."""

    def __init__(self, process: subprocess.Popen[str], address: str, registry: Any) -> None:
        self.address = address
        self.registry = registry
        self._pid = process.pid
        self.leases: dict[str, str] = {}

    async def register(self, instance: pb.Instance) -> None:
        request = pb.RegisterRequest(instance=instance, lease_s=300)
        reply = await self.registry.Register(request, timeout=_BOUND_S)
        self.leases[instance.id] = reply.lease_id

    async def report(self, instance_id: str, health: Any) -> None:
        request = pb.RenewRequest(lease_id=self.leases[instance_id], health=health)
        await self.registry.Renew(request, timeout=_BOUND_S)

    async def leave(self, instance_id: str) -> None:
        request = pb.DeregisterRequest(lease_id=self.leases.pop(instance_id))
        await self.registry.Deregister(request, timeout=_BOUND_S)

    def cpu_s(self) -> float:
        """CPU time so far."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        """Resident memory."""
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(one.split()[1]) for one in lines if one.startswith("VmRSS")) / 1024


def instance(number: int) -> pb.Instance:
    return pb.Instance(
        id=f"i-{number}", service=MODEL, name="many", address=f"127.0.0.1:{number + 1}"
    )


async def pushes(plane: Plane, streams: Sequence[Stream], endpoints: int) -> dict[str, float]:
    """Health changes one at a time: from the call to the registry until each stream has it."""
    waits: list[float] = []
    cpu = plane.cpu_s()
    for number in range(_SPARED):
        before = [len(one.versions) for one in streams]
        health = pb.HEALTH_NOT_SERVING if number % 2 == 0 else pb.HEALTH_SERVING
        started = time.monotonic()
        await plane.report(f"i-{number // 2 * 7 % endpoints}", health)
        await until(
            lambda before=before: all(
                len(one.versions) > had for one, had in zip(streams, before, strict=True)
            )
        )
        waits += [one.versions[had][1] - started for one, had in zip(streams, before, strict=True)]
    return {
        "p50": statistics.median(waits),
        "p99": statistics.quantiles(waits, n=100)[98],
        "max": max(waits),
        "cpu_ms": (plane.cpu_s() - cpu) / _SPARED * 1000,
    }


async def churn(
    plane: Plane, streams: Sequence[Stream], endpoints: int, changes: int
) -> dict[str, float]:
    """Instances leave and come back, as fast as the registry takes it."""
    memory, gone = 0.0, 0
    cpu = started = 0.0
    for number in range(-changes // 5, changes):  # the first fifth warms up
        if number == 0:
            await asyncio.sleep(1.0)
            memory, cpu, started = plane.memory_mb(), plane.cpu_s(), time.monotonic()
        if number % 2 == 0:
            gone = number * 31 % endpoints
            await plane.leave(f"i-{gone}")
        else:
            await plane.register(instance(gone))
    took = time.monotonic() - started
    await plane.leave("i-0")
    expected = set(range(2, endpoints + 1))
    await until(lambda: all(one.healthy() == expected for one in streams))
    stale = sum(one.healthy() != expected for one in streams)
    return {
        "per_s": changes / took,
        "cpu": (plane.cpu_s() - cpu) / took,
        "before_mb": memory,
        "after_mb": plane.memory_mb(),
        "stale": stale,
    }


async def drains(plane: Plane) -> list[float]:
    """From "takes no calls" in the registry until the last call that is sent there."""
    os.environ["GRPC_XDS_BOOTSTRAP_CONFIG"] = json.dumps(document(plane.address, "bench"))
    waits: list[float] = []
    async with models("few", "a", "b", "c") as started, AsyncExitStack() as stack:
        for one in started:
            await plane.register(one.instance)
        sent: dict[str, float] = {}

        async def call_on(channel: grpc.aio.Channel) -> None:
            while True:
                at = time.monotonic()
                who = await ask(channel)
                sent[who] = max(at, sent.get(who, 0.0))

        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel("xds:///model.few"))
            for _ in range(_CHANNELS)
        ]
        callers = [asyncio.create_task(call_on(one)) for one in channels]
        await until(lambda: len(sent) == len(started))
        for number in range(_DRAINS):
            who = started[number % len(started)].id
            changed = time.monotonic()
            await plane.report(who, pb.HEALTH_NOT_SERVING)
            await asyncio.sleep(0.5)
            waits.append(max(0.0, sent[who] - changed))
            await plane.report(who, pb.HEALTH_SERVING)
            back = time.monotonic()
            await until(lambda who=who, back=back: sent[who] > back)
            await asyncio.sleep(0.1)
        for one in callers:
            one.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
    return waits


async def measure(plane: Plane, options: argparse.Namespace) -> tuple[Any, Any, list[float], float]:
    """All figures: pushes, churn, drains, and the memory with the streams open."""
    for number in range(options.endpoints):
        await plane.register(instance(number))
    async with AsyncExitStack() as stack:
        streams, tasks = [], []
        for _ in range(options.streams):
            channel = grpc.aio.insecure_channel(
                plane.address,
                options=[
                    ("grpc.use_local_subchannel_pool", 1),
                    ("grpc.max_receive_message_length", 64 * 2**20),
                ],
            )
            await stack.enter_async_context(channel)
            stub: Any = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
            stream = Stream(stub.StreamAggregatedResources())
            streams.append(stream)
            tasks.append(asyncio.create_task(stream.follow("model.many")))
        whole = set(range(1, options.endpoints + 1))
        await until(lambda: all(one.last and one.healthy() == whole for one in streams))
        memory = plane.memory_mb()
        pushed = await pushes(plane, streams, options.endpoints)
        churned = await churn(plane, streams, options.endpoints, options.changes)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return pushed, churned, await drains(plane), memory


def report(
    options: argparse.Namespace, pushed: Any, churned: Any, waits: list[float], memory: float
) -> str:
    """The section of the page."""
    ms = 1000.0
    rows = [
        [
            f"one of {options.endpoints:,} endpoints changes, until each of {options.streams} "
            "streams has it",
            f"{pushed['p50'] * ms:.0f} ms median, {pushed['p99'] * ms:.0f} ms p99, "
            f"{pushed['max'] * ms:.0f} ms at most",
        ],
        ["CPU time of the control plane for it", f"{pushed['cpu_ms']:.0f} ms"],
        ["memory of the control plane with them", f"{memory:.0f} MB"],
        [
            "“takes no calls” in the registry, until the last call that a gRPC channel sends there",
            f"{statistics.median(waits) * ms:.0f} ms median, {max(waits) * ms:.0f} ms at most "
            f"of {len(waits)}",
        ],
        [
            f"{options.changes:,} endpoints come and go, {churned['per_s']:,.0f} a second",
            f"{churned['cpu']:.2f} processors; {churned['before_mb']:.0f} MB before, "
            f"{churned['after_mb']:.0f} MB after; {churned['stale']:.0f} streams with an old state",
        ],
    ]
    return f"## xDS\n\n{table(['what', 'figure'], rows)}\n\n{machine()} `make bench-xds`."


async def _serve() -> None:
    service = DiscoveryService("registry", edges=[XdsEdge(settle_s=0.0)])

    def say(served: Served) -> None:
        print(served.instance.address, flush=True)

    await serve(service, ServeOptions(metrics_port=None, drain_s=1.0), say)


async def _drive(options: argparse.Namespace) -> int:
    process = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-m", "tests.scale.bench_xds", "--serve"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = (await asyncio.to_thread(process.stdout.readline)).strip()
        async with grpc.aio.insecure_channel(address) as channel:
            registry = discovery_pb2_grpc.DiscoveryServiceStub(channel)
            plane = Plane(process, address, registry)
            pushed, churned, waits, memory = await measure(plane, options)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)
    text = report(options, pushed, churned, waits, memory)
    print(text)
    if options.write:
        write_section("xds", text)
    return int(pushed["p99"] > TARGET_S or churned["stale"] > 0)


def main() -> int:
    """Runs the bench, or the control plane of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoints", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        run(_serve())
        return 0
    return run(_drive(options))


if __name__ == "__main__":
    sys.exit(main())
