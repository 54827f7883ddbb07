"""Measures the cost of the xDS control plane, and how fast clients follow the registry.

    python -m tests.scale.bench_xds [--endpoints N] [--streams N] [--changes N]
                                    [--consul PROGRAM] [--deaths N] [--write]

The control plane is a separate process. The bench reports changes to the control plane over
DiscoveryService, as services do. The clients are ADS streams, each over its own connection, and
some gRPC channels that find their instances through xDS. If a Consul agent is available (built by
tools/setup-consul.sh, or passed with ``--consul``), the bench also measures the time from the
state critical in Consul until the last call. Without Consul, the table shows that these lines were
not measured. ``--write`` writes the figures to docs/reference/performance.md. Exits 1 if a push
takes longer than the target, or if a client has an old state.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh.discovery.v1 import discovery_pb2_grpc
from gymmesh_discovery.backends.consul import ConsulRegistry
from gymmesh_discovery.config import ConsulConfig
from gymmesh_discovery.service import DiscoveryService
from gymmesh_discovery.xds.servicer import XdsEdge
from gymmesh_runtime.serve import Served, ServeOptions, serve
from gymmesh_runtime.serving.loop import run
from tests.scale.report import machine, table, write_section
from tests.scale.xds_bench import consul
from tests.scale.xds_bench.streams import Stream, calling
from tests.unit.runtime.probe import until
from tests.xds.plane import MODEL, models

TARGET_S: Final = 0.2
_BOUND_S: Final = 60.0
_SPARED: Final = 200  # changes one at a time
_DRAINS: Final = 40
_BUILT: Final = Path(__file__).parents[2] / ".cache" / "consul" / "consul"


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


def _all_pushed(streams: Sequence[Stream], before: Sequence[int]) -> bool:
    return all(len(one.versions) > had for one, had in zip(streams, before, strict=True))


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
        await until(partial(_all_pushed, streams, before))
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
    with contextlib.suppress(AssertionError):  # it says that some are stale; how many is the figure
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
    waits: list[float] = []
    async with models("few", "a", "b", "c") as started:
        for one in started:
            await plane.register(one.instance)
        async with calling(plane.address, "xds:///model.few") as callers:
            await until(lambda: len(callers.sent) == len(started))
            for number in range(_DRAINS):
                who = started[number % len(started)].id
                changed = time.monotonic()
                await plane.report(who, pb.HEALTH_NOT_SERVING)
                waits.append(max(0.0, await callers.last_to(who) - changed))
                await plane.report(who, pb.HEALTH_SERVING)
                await callers.reach(who)
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
    options: argparse.Namespace,
    pushed: Any,
    churned: Any,
    waits: list[float],
    memory: float,
    dead: consul.Figures | None,
) -> str:
    """The section of the page."""
    ms = 1000.0
    rows = [
        [
            f"time from a change of one of {options.endpoints:,} endpoints until each of "
            f"{options.streams} streams has received the change",
            f"{pushed['p50'] * ms:.0f} ms median, {pushed['p99'] * ms:.0f} ms p99, "
            f"{pushed['max'] * ms:.0f} ms at most",
        ],
        ["CPU time of the control plane for one change", f"{pushed['cpu_ms']:.0f} ms"],
        [
            f"memory of the control plane with {options.endpoints:,} endpoints and "
            f"{options.streams} streams",
            f"{memory:.0f} MB",
        ],
        [
            "time from NOT_SERVING in the registry until the last call to the instance",
            _spread(waits),
        ],
        *_over_consul(dead),
        [
            f"load of the control plane while {options.changes:,} endpoints register and "
            f"deregister, {churned['per_s']:,.0f} per second",
            f"{churned['cpu']:.2f} processors busy. The memory was {churned['before_mb']:.0f} MB "
            f"before and {churned['after_mb']:.0f} MB after. At the end, "
            f"{churned['stale']:.0f} streams had an old state",
        ],
    ]
    return f"{table(['what is measured', 'result'], rows)}\n\n{machine()} `make bench-xds`."


def _over_consul(dead: consul.Figures | None) -> list[list[str]]:
    """The lines of an instance that becomes critical in Consul."""
    if dead is None:
        return [
            [
                "time from the state critical in Consul until the last call to the instance",
                "not measured: no Consul agent",
            ]
        ]
    deaths = dead.deaths
    lost = sum(one.lost for one in deaths)
    return [
        [
            "time from a failed TTL check in Consul until the last call to the instance",
            _spread(dead.failed_s),
        ],
        [
            "time from SIGKILL to an instance until the last call to the instance",
            f"{_spread([one.last_call_s for one in deaths])}; {lost} calls did not reach an "
            "instance",
        ],
        [
            "time from SIGKILL to an instance until Consul's gRPC check (every second) reports "
            "critical",
            _spread([one.critical_s for one in deaths]),
        ],
        [
            "time from the state critical in Consul's gRPC check until a stream of the control "
            "plane has received the state",
            _spread([max(0.0, one.told_s - one.critical_s) for one in deaths]),
        ],
        [
            "time from the state critical in Consul's gRPC check until the last call to the "
            "instance",
            _spread([max(0.0, one.last_call_s - one.critical_s) for one in deaths]),
        ],
    ]


def _spread(waits_s: Sequence[float]) -> str:
    """Median, 90th percentile and the most."""
    p90 = statistics.quantiles(waits_s, n=10, method="inclusive")[8]
    return (
        f"{statistics.median(waits_s) * 1e3:.0f} ms median, {p90 * 1e3:.0f} ms p90, "
        f"{max(waits_s) * 1e3:.0f} ms at most, of {len(waits_s)} changes"
    )


async def _serve(over: str) -> None:
    backend = ConsulRegistry(ConsulConfig(address=over)) if over else None
    service = DiscoveryService("registry", backend, edges=[XdsEdge(settle_s=0.0)])

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
    dead = await consul.measure(options.consul, options.deaths) if options.consul else None
    text = report(options, pushed, churned, waits, memory, dead)
    print(text)
    if options.write:
        write_section("xds", text)
    return int(pushed["p99"] > TARGET_S or churned["stale"] > 0)


def main() -> int:
    """Runs the bench, or the control plane of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--endpoints", type=int, default=1000, help="endpoints in the registry (default: 1000)"
    )
    parser.add_argument(
        "--streams", type=int, default=100, help="streams of the control plane (default: 100)"
    )
    parser.add_argument(
        "--changes",
        type=int,
        default=10_000,
        help="endpoints that register and deregister (default: 10000)",
    )
    built = str(_BUILT) if _BUILT.exists() else shutil.which("consul")
    parser.add_argument(
        "--consul", default=built, help="path of the Consul program (default: %(default)s)"
    )
    parser.add_argument(
        "--deaths",
        type=int,
        default=24,
        help="failed TTL checks, and killed instances, with Consul (default: 24 of each)",
    )
    parser.add_argument(
        "--write", action="store_true", help="write the figures to docs/reference/performance.md"
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--over", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        run(_serve(options.over))
        return 0
    if options.consul is None:
        print(
            "Consul was not found, so the lines about Consul are not measured. Build Consul with "
            "tools/setup-consul.sh, or pass the path of the program as --consul PATH"
        )
    return run(_drive(options))


if __name__ == "__main__":
    sys.exit(main())
