"""One of several collectors: `one_collector RUN OUTPUT SHARD TASKS IN_FLIGHT AGENT…`.

Collects a shard of the bench's rollouts, a task for each, from agents that run already. It says
"ready", begins at a line of standard input, and says what came of it as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import partial
from pathlib import Path

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client import (
    CollectOptions,
    Collector,
    OpenOptions,
    OutputFiles,
    RunIdentity,
    RunOutput,
)
from gymmesh_client.tasks import Shard
from gymmesh_mesh import remote
from gymmesh_runtime.serving.loop import run
from tests.scale.rollout_bench.ours import task

#: Seconds for which a lost agent's attempts are waited for; the product's own is 30.
RECONNECT_S = 5.0


async def collect(
    run_id: str, path: Path, shard: Shard, count: int, in_flight: int, agents: list[str]
) -> None:
    """Collects the shard's tasks, once each. A mesh must not have seen the run's id before."""
    identity = RunIdentity("t" * 64, "c" * 64)
    opening = OpenOptions(run_id=run_id, shard=shard, tasks=count)
    output = RunOutput.open(OutputFiles(path), identity, opening)
    tasks = []
    for number in range(shard.index, count, shard.of):
        one = rollout_pb2.Task()
        one.CopyFrom(task())
        one.task_id = f"sum-{number}"
        tasks.append(one)
    async with remote(agents, reconnect_s=RECONNECT_S) as mesh:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        connect = partial(mesh.agents.connect, held=True)
        options = CollectOptions(concurrency=in_flight)
        collector = Collector(connect, output, options, stored=mesh.agents.stored)
        began, cpu = time.monotonic(), time.process_time()
        tally = await collector.run(tasks)
        done = {
            "wall_s": time.monotonic() - began,
            "cpu_s": time.process_time() - cpu,
            "completed": tally.completed,
            "lost": tally.retried,
        }
    print(json.dumps(done), flush=True)


if __name__ == "__main__":
    name, where, part, how_many, most, *addresses = sys.argv[1:]
    run(collect(name, Path(where), Shard.parse(part), int(how_many), int(most), addresses))
