"""How busy agents say they are reaches the collector, and bounds it."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from gymmesh_agent.collect_stream.config import CollectConfig
from gymmesh_client import AgentLoad, CollectOptions, Collector
from gymmesh_client.collect_stream import AgentPool
from tests.support.collecting import CollectAgent, directory_of, serve_agent
from tests.support.rollouts import make_task
from tests.unit.client.test_collect import prepared, rows


async def test_a_run_is_no_wider_than_its_agents(tmp_path: Path) -> None:
    agents = [
        CollectAgent(pause=lambda event: 0.05, config=CollectConfig(capacity=3)) for _ in range(2)
    ]
    async with (
        serve_agent(agents[0]) as one,
        serve_agent(agents[1]) as other,
        directory_of(f"127.0.0.1:{one}", f"127.0.0.1:{other}") as directory,
    ):
        pool = AgentPool(directory)
        assert pool.load() == AgentLoad()
        files, output = prepared(tmp_path)
        options = CollectOptions(concurrency=40)
        run = Collector(
            partial(pool.connect, held=True), output, options, stored=pool.stored, load=pool.load
        )
        rollouts = [make_task(f"t-{number}") for number in range(150)]
        for task in rollouts:
            task.agent = "scripted"
        going = asyncio.create_task(run.run(rollouts))
        async with asyncio.timeout(60):
            while run.figures().width != 6:  # noqa: ASYNC110 (what is waited for has no event)
                await asyncio.sleep(0.02)
        assert run.figures().concurrency == 40
        tally = await asyncio.wait_for(going, 60)
        await pool.close()
    assert (tally.completed, tally.failed) == (150, 0)
    assert len(rows(files.rows)) == 150
