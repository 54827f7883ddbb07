"""A real discovery service in a process of its own, with some hundred watchers and registrations.

Its CPU time is read off for each kind of work by itself. Watchers are gRPC clients with a
connection each, as services have one; they all live in this process.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import grpc

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh.discovery.v1 import discovery_pb2_grpc
from gymmesh_discovery.service import DiscoveryService
from gymmesh_runtime.serve import Served, ServeOptions, serve
from gymmesh_runtime.serving.loop import run
from tests.scale.rollout_bench import usage
from tests.scale.rollout_bench.contender import ROOT

#: (instances, watchers). The model is fitted to the first three, and held to the last.
SIZES: Final = ((200, 100), (800, 100), (200, 400), (800, 400))
_RENEWALS: Final = 500
_ROUNDS: Final = 5
_AT_ONCE: Final = 16
_CHANGES: Final = 40
_BOUND_S: Final = 60.0
_MODULE: Final = "tests.scale.scaling.measure_registry"
_OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
    ("grpc.max_receive_message_length", 64 * 2**20),
)


@dataclass(frozen=True, slots=True)
class RegistryFigures:
    """What a registry of a size costs: microseconds of its CPU time, KB of its memory (PSS).

    Attributes:
        renew_us: one renewal of a lease.
        change_us: one change, told to all watchers.
        snapshot_us: one watcher that comes, and is sent everything.
        snapshot_bytes: what it is sent.
        watcher_kb: one watcher.
        told_ms: from the call that makes a change until the last watcher has it, median.
    """

    instances: int
    watchers: int
    renew_us: float
    change_us: float
    snapshot_us: float
    snapshot_bytes: int
    watcher_kb: float
    told_ms: float


def instance(number: int) -> pb.Instance:
    """One as large as those of real services, which say where they are and how much they take."""
    return pb.Instance(
        id=f"agent.tool_loop.machine-{number:05d}-4f2a",
        service="gymmesh.agent.v1.AgentService",
        name="tool_loop",
        address=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:9400",
        metrics_address=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:9464",
        contract_version="1.0",
        meta={"keepalive_s": "20", "capacity": "16384"},
        health=pb.HEALTH_SERVING,
    )


class _Watcher:
    """A service's watch: knows how many changes it has heard of."""

    def __init__(self, stub: Any) -> None:
        self.heard = 0
        self.bytes = 0
        self.more = asyncio.Event()
        self._stream = stub.WatchInstances(pb.WatchInstancesRequest())
        self.task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async for response in self._stream:
            self.heard += 1
            self.bytes += response.ByteSize()
            self.more.set()

    async def has_heard(self, times: int) -> None:
        """Waits until it has had so many responses."""
        while self.heard < times:
            self.more.clear()
            async with asyncio.timeout(_BOUND_S):
                await self.more.wait()

    async def close(self) -> None:
        self._stream.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def measure(instances: int, watchers: int) -> RegistryFigures:
    """The figures of one size, in a registry of its own."""
    async with _registry() as (pid, address, stack):
        stub = await _stub(address, stack)
        leases = [await _register(stub, number) for number in range(instances)]

        renewals = []
        for _ in range(_ROUNDS):
            before = usage.cpu_clock_s(pid)
            await _renew_all(stub, [leases[at % instances] for at in range(_RENEWALS)])
            renewals.append((usage.cpu_clock_s(pid) - before) / _RENEWALS)

        memory, before = usage.pss_mb([pid]), usage.cpu_clock_s(pid)
        watching = [_Watcher(await _stub(address, stack)) for _ in range(watchers)]
        for one in watching:
            stack.push_async_callback(one.close)
            await one.has_heard(1)
        snapshot_s = (usage.cpu_clock_s(pid) - before) / watchers
        watcher_mb = (usage.pss_mb([pid]) - memory) / watchers
        snapshot_bytes = watching[0].bytes

        waits, changes = [], []
        for at in range(_CHANGES):
            health = pb.HEALTH_NOT_SERVING if at % 2 == 0 else pb.HEALTH_SERVING
            started, before = time.monotonic(), usage.cpu_clock_s(pid)
            request = pb.RenewRequest(lease_id=leases[at // 2], health=health)
            await stub.Renew(request, timeout=_BOUND_S)
            await asyncio.gather(*(one.has_heard(2 + at) for one in watching))
            waits.append(time.monotonic() - started)
            changes.append(usage.cpu_clock_s(pid) - before)
    return RegistryFigures(
        instances,
        watchers,
        statistics.median(renewals) * 1e6,
        statistics.median(changes) * 1e6,
        snapshot_s * 1e6,
        snapshot_bytes,
        watcher_mb * 1e3,
        statistics.median(waits) * 1e3,
    )


async def measure_all() -> list[dict[str, Any]]:
    """The figures of all sizes, as JSON values."""
    found = []
    for size in SIZES:
        found.append(asdict(await measure(*size)))
        print(f"  registry {size}: {found[-1]}", flush=True)
    return found


@asynccontextmanager
async def _registry() -> AsyncIterator[tuple[int, str, AsyncExitStack]]:
    process = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-m", _MODULE],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = (await asyncio.to_thread(process.stdout.readline)).strip()
        async with AsyncExitStack() as stack:
            yield process.pid, address, stack
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


async def _stub(address: str, stack: AsyncExitStack) -> Any:
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=_OPTIONS))
    return discovery_pb2_grpc.DiscoveryServiceStub(channel)


async def _register(stub: Any, number: int) -> str:
    request = pb.RegisterRequest(instance=instance(number), lease_s=300)
    reply: pb.RegisterResponse = await stub.Register(request, timeout=_BOUND_S)
    return reply.lease_id


async def _renew_all(stub: Any, leases: list[str]) -> None:
    rest = iter(leases)

    async def work() -> None:
        for lease in rest:
            await stub.Renew(pb.RenewRequest(lease_id=lease), timeout=_BOUND_S)

    await asyncio.gather(*(work() for _ in range(_AT_ONCE)))


async def _serve() -> None:
    def say(served: Served) -> None:
        print(served.instance.address, flush=True)

    await serve(DiscoveryService("registry"), ServeOptions(metrics_port=None, drain_s=1.0), say)


if __name__ == "__main__":
    run(_serve())
