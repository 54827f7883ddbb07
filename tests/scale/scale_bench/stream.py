"""Many rollouts through one collector: python -m tests.scale.scale_bench.stream ADDRESS N.

An agent in a process of its own sends five events for each rollout, from a script, over Collect;
the collector folds them and writes row, index and journal. With `--serve` this is that agent, and
prints its port.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import CollectOptions, Collector, OutputFiles, RunIdentity, RunOutput
from gymmesh_mesh import remote
from gymmesh_responses import params_from_json
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.serving.loop import run
from gymmesh_runtime.wire.server import MeshServer
from tests.scale.report import table
from tests.scale.rollout_bench import usage
from tests.scale.rollout_bench.contender import ROOT
from tests.support.collecting import AGENT, CollectAgent

LIMIT_MB: Final = 400.0
MOST_GROWTH_MB: Final = 40.0  # from a fifth of the run to its end
_IN_FLIGHT: Final = 512
_EVERY_S: Final = 0.5
_MODULE: Final = "tests.scale.scale_bench.stream"


@dataclass(frozen=True, slots=True)
class Stream:
    """What the collector took; CPU in µs per rollout, memory (PSS) in MB, disk in MB/s."""

    rollouts: int
    per_s: float
    collector_us: float
    agent_us: float
    early_mb: float
    late_mb: float
    most_mb: float
    disk_mb: float
    disk_mb_s: float


class _Forgetful(CollectAgent):
    """Keeps no record of what it ran."""

    async def run_rollout(
        self, request: Any, context: Any, sink: Any, waited_s: float = 0.0
    ) -> None:
        await super().run_rollout(request, context, sink, waited_s)
        self.requests.clear()
        self.contexts.clear()


async def serve() -> None:
    """The agent: says its port, and serves until its input ends."""
    server = MeshServer([Binding(AGENT, _Forgetful())])
    print(await server.start("127.0.0.1", 0), flush=True)
    await asyncio.to_thread(sys.stdin.read)


async def collect(address: str, rollouts: int) -> None:
    """The collector: says when it begins, and when all are done how much it wrote, in bytes."""
    task = pb.Task(
        task_id="stream",
        environment="math",
        agent="scripted",
        params=params_from_json({"input": [{"role": "user", "content": "What is 2 + 3?"}]}),
        payload_json=b'{"wanted": "5"}',
    )
    with tempfile.TemporaryDirectory() as folder:
        files = OutputFiles(Path(folder) / "rows.jsonl")
        output = RunOutput.open(files, RunIdentity("", ""))
        options = CollectOptions(repeats=rollouts, concurrency=_IN_FLIGHT)
        async with remote(address) as mesh:
            connect = partial(mesh.agents.connect, held=True)
            collector = Collector(connect, output, options, stored=mesh.agents.stored)
            print("collecting", flush=True)
            tally = await collector.run([task])
        if tally.completed != rollouts:
            raise RuntimeError(f"not all completed: {tally}")
        written = sum(one.stat().st_size for one in Path(folder).rglob("*") if one.is_file())
    print(json.dumps({"bytes": written}), flush=True)


def measure(rollouts: int) -> Stream:
    """Runs both, and watches them; raises CalledProcessError when one fails."""
    with ExitStack() as stack:
        agent = stack.enter_context(_process("--serve"))
        stack.callback(_end, agent)
        assert agent.stdout is not None
        address = f"127.0.0.1:{agent.stdout.readline().strip()}"
        agent_s = usage.cpu_s([agent.pid])
        started = time.perf_counter()
        collector = stack.enter_context(_process(address, str(rollouts)))
        assert collector.stdout is not None
        collector.stdout.readline()  # memory while it starts is not of the run, which may be short
        memory: list[float] = []
        collector_s = 0.0
        while collector.poll() is None:
            collector_s = max(collector_s, usage.cpu_s([collector.pid]))
            memory.append(usage.pss_mb([collector.pid]))
            time.sleep(_EVERY_S)
        wall_s = time.perf_counter() - started
        agent_s = usage.cpu_s([agent.pid]) - agent_s
        if collector.returncode:
            raise subprocess.CalledProcessError(collector.returncode, "the collector")
        written = json.loads(collector.stdout.read())["bytes"]
    memory = [one for one in memory if one]
    tail = max(1, len(memory) // 10)
    early = memory[len(memory) // 5 :][:tail]
    late = memory[-tail - 1 : -1] or memory[-1:]
    return Stream(
        rollouts,
        rollouts / wall_s,
        collector_s / rollouts * 1e6,
        agent_s / rollouts * 1e6,
        sum(early) / len(early),
        sum(late) / len(late),
        max(memory),
        written / 1e6,
        written / 1e6 / wall_s,
    )


def _process(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", _MODULE, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait(30)


def report(one: Stream) -> str:
    """Part of the page's section."""
    rows = [
        ["rollouts per second", f"{one.per_s:.0f}"],
        ["CPU of the collector, µs per rollout", f"{one.collector_us:.0f}"],
        ["CPU of the agent's process, µs per rollout", f"{one.agent_us:.0f}"],
        ["collector's memory after the first fifth of the run, MB", f"{one.early_mb:.0f}"],
        ["collector's memory at the end, MB", f"{one.late_mb:.0f}"],
        ["collector's highest memory, MB", f"{one.most_mb:.0f}"],
        ["data written to disk, MB", f"{one.disk_mb:.0f}"],
        ["data written to disk per second, MB/s", f"{one.disk_mb_s:.1f}"],
    ]
    return (
        f"Part `stream`: one collector received {one.rollouts:,} rollouts of five events each, "
        f"{_IN_FLIGHT} in flight, from a scripted agent in another process:\n\n"
        f"{table(['what is measured', 'result'], rows)}"
    )


def misses(one: Stream) -> Sequence[str]:
    """One sentence for each limit that was not kept."""
    lines = []
    if one.most_mb > LIMIT_MB:
        lines.append(f"the collector used {one.most_mb:.0f} MB, limit {LIMIT_MB:.0f} MB")
    if one.late_mb - one.early_mb > MOST_GROWTH_MB:
        lines.append(
            f"the collector's memory grew from {one.early_mb:.0f} to {one.late_mb:.0f} MB, "
            f"limit {MOST_GROWTH_MB:.0f} MB of growth"
        )
    return lines


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        run(serve())
    else:
        run(collect(sys.argv[1], int(sys.argv[2])))
