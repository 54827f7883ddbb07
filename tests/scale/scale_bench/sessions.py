"""Sessions of an environment service.

    python -m tests.scale.scale_bench.sessions SESSIONS IN_FLIGHT

Opens so many sessions at a service in another process, all at the same time, calls a tool in each
and closes them, with so many calls in flight, and prints milliseconds of each kind of call and the
seconds of all.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh_mesh import up
from gymmesh_resource.service import RESOURCE_SERVICE
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serving.loop import run
from tests.scale.report import table
from tests.scale.rollout_bench.contender import ROOT
from tests.scale.rollout_bench.ours import configuration, task
from tests.scale.scale_bench.latency import percentile

SESSIONS: Final = 16_384
IN_FLIGHT: Final = 256
MOST_MS: Final = 1000.0  # at the 99th percentile
KINDS: Final = ("open", "call", "close")
_TIMEOUT_S: Final = 300.0


async def _timed(
    calls: Sequence[Callable[[], Awaitable[Any]]], in_flight: int
) -> tuple[list[Any], list[float]]:
    """What each call returned, and how many milliseconds it took."""
    answers: list[Any] = [None] * len(calls)
    took: list[float] = []
    left = iter(enumerate(calls))

    async def worker() -> None:
        for place, call in left:
            began = time.perf_counter()
            answers[place] = await call()
            took.append((time.perf_counter() - began) * 1e3)

    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return answers, took


def _open(peer: Any, number: int) -> Callable[[], Awaitable[Any]]:
    request = resource_pb2.CreateSessionRequest(task=task(), request_id=f"r{number}")
    return lambda: peer.CreateSession(request, timeout=_TIMEOUT_S)


def _call(peer: Any, session_id: str) -> Callable[[], Awaitable[Any]]:
    request = resource_pb2.CallToolRequest(
        session_id=session_id,
        name="add",
        arguments=b'{"left": 2, "right": 3}',
        call_id="call",
        request_id="add",
    )
    return lambda: peer.CallTool(request, timeout=_TIMEOUT_S)


def _close(peer: Any, session_id: str) -> Callable[[], Awaitable[Any]]:
    request = resource_pb2.CloseSessionRequest(session_id=session_id)
    return lambda: peer.CloseSession(request, timeout=_TIMEOUT_S)


async def main(sessions: int, in_flight: int) -> None:
    """Prints the figures."""
    async with up(configuration("http://127.0.0.1:9", "mesh")) as running:
        [address] = [one.address for one in running.infos if one.kind == "environment"]
        instance = discovery_pb2.Instance(
            id="adder-0", service=RESOURCE_SERVICE, name="adder", address=address
        )
        directory = PeerDirectory()
        try:
            peer = directory.peer(instance)
            began = time.perf_counter()
            opened, opening = await _timed([_open(peer, n) for n in range(sessions)], in_flight)
            ids = [one.session_id for one in opened]
            called, calling = await _timed([_call(peer, one) for one in ids], in_flight)
            assert all(one.text == b"5" for one in called)
            _, closing = await _timed([_close(peer, one) for one in ids], in_flight)
            found = {"all_s": time.perf_counter() - began}
        finally:
            await directory.close()
    for kind, took in zip(KINDS, (opening, calling, closing), strict=True):
        found |= {f"{kind}_{at}": percentile(took, part) for at, part in _AT.items()}
    print(json.dumps(found))


_AT: Final = {"p50": 0.5, "p99": 0.99}


def measure(sessions: int = SESSIONS, in_flight: int = IN_FLIGHT) -> dict[str, float]:
    """The figures."""
    command = [sys.executable, "-m", "tests.scale.scale_bench.sessions"]
    done = subprocess.run(
        [*command, str(sessions), str(in_flight)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=900,
        check=True,
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def report(found: dict[str, float], sessions: int = SESSIONS) -> str:
    """Part of the page's section."""
    rows = [[kind, *(f"{found[f'{kind}_{at}']:.0f}" for at in _AT)] for kind in KINDS]
    return (
        f"Part `sessions`: {sessions:,} sessions of one environment service were open at the same "
        f"time. Another process made {IN_FLIGHT} calls at a time. All calls took "
        f"{found['all_s']:.0f} s:\n\n"
        f"{table(['kind of call', 'p50, ms', 'p99, ms'], rows)}"
    )


def misses(found: dict[str, float]) -> Sequence[str]:
    """One sentence for each limit that was not kept."""
    return [
        f"sessions: the p99 of the call {kind!r} is {found[f'{kind}_p99']:.0f} ms, "
        f"limit {MOST_MS:.0f} ms"
        for kind in KINDS
        if found[f"{kind}_p99"] > MOST_MS
    ]


if __name__ == "__main__":
    run(main(int(sys.argv[1]), int(sys.argv[2])))
