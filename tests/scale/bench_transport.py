"""Compares the CPU cost of a call as a plain RPC and over the mux.

    python tests/scale/bench_transport.py [--calls N] [--rounds N]

A client and a server are separate processes, each with its own event loop. The handler does
nothing, so all CPU time is the cost of the transport. The bench counts the CPU of both processes,
with all threads. The server answers at once, so that calls share messages, or after 0 to 100 ms,
so that fewer calls share a message. Plain RPCs and the mux alternate in each round. The bench
prints medians. Exits 1 if a call over the mux costs more than its target.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.peers import PeerDirectory, TransportName
from gymmesh_runtime.serving.loop import run
from gymmesh_runtime.wire.server import MeshServer

MODEL: Final = "gymmesh.model.v1.ModelService"
WAYS: Final[tuple[TransportName, ...]] = ("plain", "auto")
NAMES: Final = {"plain": "plain RPCs", "auto": "mux"}
IN_FLIGHT: Final = (1, 64, 512)
TARGET_US: Final = 100.0  # a unary call, both sides, 64 in flight
_LONGEST_S: Final = 0.1
_MESSAGES: Final = 100  # in a stream
_LARGE_BYTES: Final = 2 * 1024 * 1024  # of a request that goes by a plain RPC
_TIMEOUT_S: Final = 60.0


class Echo:
    """Answers at once or later; streams as many messages as a stream of tokens may have."""

    def __init__(self) -> None:
        self._random = random.Random(1)

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        if request.rollout_id == "cpu":
            return model_pb2.CreateResponseResponse(call_id=repr(time.process_time()))
        if request.rollout_id == "later":
            await asyncio.sleep(self._random.uniform(0.0, _LONGEST_S))
        return model_pb2.CreateResponseResponse(call_id=request.request_id)

    async def StreamResponse(
        self, request: model_pb2.StreamResponseRequest, context: CallContext
    ) -> AsyncIterator[model_pb2.StreamResponseResponse]:
        for index in range(_MESSAGES):
            yield model_pb2.StreamResponseResponse(
                delta=model_pb2.ResponseDelta(output_index=index)
            )


async def serve() -> None:
    """The server's process: prints its address and serves until its input ends."""
    server = MeshServer([Binding(MODEL, Echo())])
    port = await server.start("127.0.0.1", 0)
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)


def _request(kind: str = "work") -> model_pb2.CreateResponseRequest:
    size = _LARGE_BYTES if kind == "large" else 300
    params = responses_pb2.ResponseParams(instructions="x" * size)
    return model_pb2.CreateResponseRequest(params=params, rollout_id=kind, request_id="r-1")


class Client:
    """One way to the server."""

    def __init__(self, address: str, way: TransportName) -> None:
        self._directory = PeerDirectory(transport=way)
        self._peer: Any = self._directory.peer(
            discovery_pb2.Instance(id="echo", service=MODEL, name="echo", address=address)
        )

    async def unary(self, calls: int, in_flight: int, kind: str = "work") -> float:
        """CPU microseconds of a call, both sides."""
        request = _request(kind)

        async def work(count: int) -> None:
            for _ in range(count):
                await self._peer.CreateResponse(request, timeout=_TIMEOUT_S)

        return await self._cost(lambda: work(calls // in_flight), in_flight) / calls

    async def stream(self, streams: int, in_flight: int) -> float:
        """CPU microseconds of a streamed message, both sides."""
        request = model_pb2.StreamResponseRequest(call=_request())

        async def work(count: int) -> None:
            for _ in range(count):
                async for _message in self._peer.StreamResponse(request, timeout=_TIMEOUT_S):
                    pass

        cost = await self._cost(lambda: work(streams // in_flight), in_flight)
        return cost / (streams * _MESSAGES)

    async def close(self) -> None:
        await self._directory.close()

    async def _cost(self, work: Callable[[], Awaitable[None]], in_flight: int) -> float:
        await work()  # what the first calls cost counts for nothing
        before = await self._cpu()
        await asyncio.gather(*(work() for _ in range(in_flight)))
        return (await self._cpu() - before) * 1e6

    async def _cpu(self) -> float:
        reply = await self._peer.CreateResponse(_request("cpu"), timeout=_TIMEOUT_S)
        return float(reply.call_id) + time.process_time()


async def measure(address: str, calls: int, rounds: int) -> dict[str, dict[str, float]]:
    """The median cost of each kind of call, by way, in CPU microseconds."""
    samples: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for way in WAYS:
            client = Client(address, way)
            for in_flight in IN_FLIGHT:
                # Without batches one call costs what ten do with them.
                count = calls // 10 if in_flight == 1 or way == "plain" else calls
                cost = await client.unary(max(count, 2 * in_flight), in_flight)
                samples.setdefault(f"{in_flight} in flight", {}).setdefault(way, []).append(cost)
            cost = await client.unary(5_120, 512, "later")
            samples.setdefault("512, 0 to 100 ms", {}).setdefault(way, []).append(cost)
            cost = await client.unary(128, 8, "large")
            samples.setdefault("2 MiB, 8 in flight", {}).setdefault(way, []).append(cost)
            cost = await client.stream(128, 64)
            samples.setdefault("streamed message", {}).setdefault(way, []).append(cost)
            await client.close()
    return {
        what: {way: statistics.median(costs) for way, costs in by_way.items()}
        for what, by_way in samples.items()
    }


def main() -> int:
    """Measures, prints a table and a verdict, and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="make bench-transport",
        description="Compares the CPU cost of a call as a plain RPC and over the mux.",
    )
    parser.add_argument(
        "--calls",
        type=int,
        default=10_000,
        help="calls per round over the mux; a tenth of them as plain RPCs (default: 10000)",
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: 3)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        run(serve())
        return 0
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        table = run(measure(address, arguments.calls, arguments.rounds))
    finally:
        server.communicate()
    print("CPU of a call in µs, both processes together; ratio: plain RPCs / mux")
    print(f"{'call':20}" + "".join(f"{NAMES[way]:>12}" for way in WAYS) + "   ratio")
    for what, costs in table.items():
        ratio = costs["plain"] / costs["auto"]
        print(f"{what:20}" + "".join(f"{costs[way]:12.1f}" for way in WAYS) + f"{ratio:8.1f}")
    met = table["64 in flight"]["auto"] <= TARGET_US
    print(
        f"{'target met' if met else 'TARGET MISSED'}: a call over the mux, 64 in flight, takes at "
        f"most {TARGET_US:.0f} µs"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
