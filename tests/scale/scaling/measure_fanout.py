"""One process that spreads its calls over many peers, as an agent does over model services.

The peers are servers on ports of their own in one process, so that their number costs no
processors here. As many calls as ever are in flight; the more peers, the fewer share a message.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serving.loop import run
from gymmesh_runtime.wire.server import MeshServer
from tests.scale.bench_transport import MODEL, Echo
from tests.scale.bench_transport import _request as request
from tests.scale.rollout_bench import usage
from tests.scale.rollout_bench.contender import ROOT

#: The model is fitted to the first and the last, and held to those between.
PEERS: Final = (1, 4, 16, 64, 256)
IN_FLIGHT: Final = 512
#: Of an answer, in seconds: uniform from 0 to twice this.
MEAN_S: Final = 0.05
_CALLS: Final = 10_240
_ROUNDS: Final = 3
_TIMEOUT_S: Final = 60.0
_MODULE: Final = "tests.scale.scaling.measure_fanout"


@dataclass(frozen=True, slots=True)
class FanoutFigures:
    """What a call costs with so many peers.

    Attributes:
        call_us: microseconds of CPU time of both sides, all threads.
        calls_per_s: how many there were.
        peer_kb: memory (PSS) of a connection to a peer, both sides, above that of the first peer.
    """

    peers: int
    call_us: float
    calls_per_s: float
    peer_kb: float


class _Caller:
    """Calls the peers at some addresses in turn."""

    def __init__(self, addresses: Sequence[str], pid: int) -> None:
        self._directory = PeerDirectory()
        instances = [
            discovery_pb2.Instance(id=address, service=MODEL, name="echo", address=address)
            for address in addresses
        ]
        self._peers: list[Any] = [self._directory.peer(one) for one in instances]
        self._pid = pid

    async def call(self, calls: int) -> tuple[float, float]:
        """Microseconds of CPU time of a call, and calls a second."""
        numbers = iter(range(calls))
        message, peers = request("later"), self._peers

        async def work() -> None:
            for number in numbers:
                await peers[number % len(peers)].CreateResponse(message, timeout=_TIMEOUT_S)

        loop = asyncio.get_running_loop()
        before, began = self._cpu_s(), loop.time()
        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
        return (self._cpu_s() - before) / calls * 1e6, calls / (loop.time() - began)

    async def close(self) -> None:
        await self._directory.close()

    def _cpu_s(self) -> float:
        return usage.cpu_clock_s(self._pid) + usage.cpu_clock_s(os.getpid())


async def _measure(addresses: Sequence[str], pid: int) -> list[dict[str, Any]]:
    found: dict[int, list[tuple[float, float]]] = {count: [] for count in PEERS}
    memory: dict[int, float] = {}
    for _ in range(_ROUNDS):
        for count in PEERS:
            caller = _Caller(addresses[:count], pid)
            await caller.call(max(IN_FLIGHT, 2 * count))  # connects
            memory.setdefault(count, usage.pss_mb([pid, os.getpid()]))
            found[count].append(await caller.call(_CALLS))
            await caller.close()
    first = memory[PEERS[0]]
    figures = []
    for count, rounds in found.items():
        more = count - PEERS[0]
        kb = (memory[count] - first) * 1e3 / more if more else 0.0
        costs, rates = zip(*rounds, strict=True)
        one = FanoutFigures(count, statistics.median(costs), statistics.median(rates), kb)
        print(f"  fan-out: {one}", flush=True)
        figures.append(asdict(one))
    return figures


def measure_all() -> list[dict[str, Any]]:
    """The figures of all numbers of peers, as JSON values."""
    server = subprocess.Popen(
        [sys.executable, "-m", _MODULE],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        addresses = server.stdout.readline().split()
        return run(_measure(addresses, server.pid))
    finally:
        server.communicate()


async def _serve() -> None:
    servers = [MeshServer([Binding(MODEL, Echo())]) for _ in range(max(PEERS))]
    ports = [await server.start("127.0.0.1", 0) for server in servers]
    print(" ".join(f"127.0.0.1:{port}" for port in ports), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await asyncio.gather(*(server.stop(0) for server in servers))


if __name__ == "__main__":
    run(_serve())
