"""The collector of the bench: python -m …collector ADDRESS ROWS ROLLOUTS IN_FLIGHT LAG.

Resumes where rows are already there.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from gymmesh.agent.v1 import agent_pb2
from gymmesh.model.v1 import tokens_pb2
from gymmesh_client import CollectOptions, Collector, OutputFiles, RunIdentity, RunOutput
from gymmesh_client.output import OpenOptions
from gymmesh_mesh import remote
from gymmesh_runtime.serving.loop import run
from tests.scale.rollout_bench.ours import task
from tests.scale.side_data_bench.lag import LoopLag
from tests.scale.side_data_bench.services import NAME


async def collect(address: str, rows: Path, rollouts: int, in_flight: int, lag: Path) -> None:
    """Raises RuntimeError where not all completed."""
    ticking = asyncio.create_task(LoopLag(lag).run())
    output = RunOutput.open(
        OutputFiles(rows), RunIdentity("", ""), OpenOptions(resume=rows.exists())
    )
    capture = tokens_pb2.CaptureOptions(token_ids=True, logprobs=True, side_data=[NAME])
    options = CollectOptions(
        repeats=rollouts,
        concurrency=in_flight,
        rollout=agent_pb2.RolloutOptions(capture=capture),
        timeout_s=3600.0,
    )
    async with remote(address) as mesh:
        connect = partial(mesh.agents.connect, held=True)
        collector = Collector(connect, output, options, stored=mesh.agents.stored)
        await collector.run([task()])
    ticking.cancel()
    with suppress(asyncio.CancelledError):
        await ticking
    if output.outcomes != rollouts:
        raise RuntimeError(f"not all completed: {output.outcomes}")


if __name__ == "__main__":
    address, rows, rollouts, in_flight, lag = sys.argv[1:]
    run(collect(address, Path(rows), int(rollouts), int(in_flight), Path(lag)))
