"""Compares the CPU cost of the RPC Collect with one stream for each rollout.

    python tests/scale/bench_collect.py [--rollouts N] [--rounds N]

The agent sends five scripted events per rollout. The collector folds the events. Agent and
collector are separate processes. The bench counts the CPU of both processes, with all threads. In
the column `nothing`, one process creates and folds the events without a transport. The ways
alternate in each round. The bench prints medians. Exits 1 if Collect costs more than its target.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import InProcessAgent, StreamingAgent, run_attempt
from gymmesh_client.collect_stream import AgentPool
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serving.loop import run
from gymmesh_runtime.wire.server import MeshServer
from tests.support.collecting import AGENT, CollectAgent, agent_at, ask

IN_FLIGHT: Final = (1, 64, 512)
TARGET_US: Final = 168.0  # both sides, 64 in flight, making and folding the events included
_LONGEST_S: Final = 0.1
_TIMEOUT_S: Final = 60.0
Connect = Callable[[str], Awaitable[Any]]


class BenchAgent(CollectAgent):
    """Answers at once, or pauses up to 0.1 s before each model call of rollouts tagged so."""

    def __init__(self) -> None:
        draw = random.Random(1)
        super().__init__(pause=lambda event: draw.uniform(0, _LONGEST_S) if _late(event) else None)

    async def run_rollout(
        self, request: Any, context: Any, sink: Any, waited_s: float = 0.0
    ) -> None:
        """Keeps no record of what it ran."""
        await super().run_rollout(request, context, sink, waited_s)
        self.requests.clear()
        self.contexts.clear()

    async def GetAgent(self, request: Any, context: CallContext) -> agent_pb2.GetAgentResponse:
        """Says the CPU time that its process has used."""
        about = await super().GetAgent(request, context)
        about.description = repr(time.process_time())
        return about


def _late(event: pb.RolloutEvent) -> bool:
    return event.HasField("model_call_completed") and event.rollout_id.startswith("ro-9")


async def serve() -> None:
    """The agent's process: says its port on standard output, and serves until it is killed."""
    server = MeshServer([Binding(AGENT, BenchAgent())])
    print(await server.start("127.0.0.1", 0), flush=True)
    await asyncio.Event().wait()


@asynccontextmanager
async def agent_process() -> AsyncIterator[str]:
    """The agent in a process of its own; gives its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--serve", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield f"127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.kill()
        await process.wait()


class Bench:
    """The ways to an agent, and the measure."""

    def __init__(self, ways: dict[str, Connect], about: Any, stored: Any) -> None:
        self.ways = ways
        self._about = about
        self._stored = stored

    async def measure(self, way: str, rollouts: int, in_flight: int, *, late: bool) -> float:
        """CPU microseconds a rollout, over both processes."""
        numbers = iter(range(rollouts))
        connect = self.ways[way]

        async def worker() -> None:
            for number in numbers:
                request = ask((9 if late else 1) * 10**8 + number, agent="scripted")
                outcome = await run_attempt(connect, request, repeat_index=0, timeout_s=_TIMEOUT_S)
                assert isinstance(outcome, pb.Rollout), outcome.failure
                self._stored(outcome.rollout_id, outcome.attempt)

        before = await self._cpu_s()
        await asyncio.gather(*(worker() for _ in range(in_flight)))
        return (await self._cpu_s() - before) / rollouts * 1e6

    async def _cpu_s(self) -> float:
        about = await self._about(agent_pb2.GetAgentRequest(), timeout=_TIMEOUT_S)
        return time.process_time() + float(about.description)


@asynccontextmanager
async def opened() -> AsyncIterator[Bench]:
    """Everything up."""
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(agent_process())
        plain, mux = PeerDirectory(transport="plain"), PeerDirectory()
        for directory in (plain, mux):
            stack.push_async_callback(directory.close)
            directory.upsert(agent_at(address))
        pool = AgentPool(mux)
        stack.push_async_callback(pool.close)
        peers = [directory.peer(directory.instances()[0]) for directory in (plain, mux)]
        ways: dict[str, Connect] = {
            "nothing": _to(InProcessAgent(BenchAgent())),
            "Collect": lambda name: pool.connect(name, held=True),
            "RunRollout, mux": _to(StreamingAgent(peers[1])),
            "RunRollout, plain": _to(StreamingAgent(peers[0])),
        }
        yield Bench(ways, peers[0].GetAgent, pool.stored)


def _to(peer: Any) -> Connect:
    async def connect(name: str) -> Any:
        return peer

    return connect


async def main(rollouts: int, rounds: int) -> int:
    """Prints the table; returns the exit status."""
    async with opened() as bench:
        print(f"{'CPU per rollout, µs':24}", *(f"{way:>18}" for way in bench.ways))
        reached = True
        for late in (False, True):
            for in_flight in IN_FLIGHT:
                if late and in_flight == 1:
                    continue
                found: dict[str, list[float]] = {way: [] for way in bench.ways}
                for _ in range(rounds):
                    for way, figures in found.items():
                        count = max(in_flight, rollouts // (8 if "RunRollout" in way else 1))
                        count = count // 10 if in_flight == 1 else count
                        figures.append(await bench.measure(way, count, in_flight, late=late))
                medians = {way: statistics.median(figures) for way, figures in found.items()}
                label = f"{in_flight} in flight, {'0–100 ms' if late else 'at once'}"
                print(f"{label:24}", *(f"{one:18.0f}" for one in medians.values()))
                if in_flight == 64 and not late:
                    reached = medians["Collect"] <= TARGET_US
    print(
        f"target, at most {TARGET_US:.0f} µs for Collect with 64 rollouts in flight: "
        f"{'met' if reached else 'MISSED'}"
    )
    return 0 if reached else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--rollouts", type=int, default=4000, help="rollouts per round (default: 4000)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: 3)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        run(serve())
    else:
        raise SystemExit(run(main(arguments.rollouts, arguments.rounds)))
