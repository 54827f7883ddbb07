"""Rollouts over one stream: all arrive, each event once."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.integration.collect_stream.runs import (
    buffer_of,
    collecting,
    exact,
    until,
)
from tests.support.collecting import (
    CollectAgent,
    ask,
)


async def test_rollouts_run_over_one_stream() -> None:
    agent = CollectAgent()
    async with collecting(agent) as (run, proxy):
        requests = [ask(number) for number in range(200)]
        await asyncio.gather(*(run.one(request) for request in requests))
        assert all(run.came[one.rollout_id, 1] == exact(one) for one in requests)
        assert proxy.connections == 1
        await until(lambda: len(buffer_of(agent)) == 0)  # all stored, so all forgotten
        assert run.stream.in_flight == 0
        await run.stream.close()
        await until(lambda: not agent.collectors._collectors)


@pytest.mark.parametrize(("seed", "count"), [(1, 2000), (2, 500)])
async def test_cuts_at_random_points_lose_and_repeat_nothing(seed: int, count: int) -> None:
    draw = random.Random(seed)
    agent = CollectAgent(pause=lambda event: draw.random() * 0.02 if draw.random() < 0.3 else None)
    places = asyncio.Semaphore(100)
    async with collecting(agent, cut_after=lambda: draw.randrange(1_000, 60_000)) as (run, proxy):

        async def one(number: int) -> None:
            async with places:
                await run.one(ask(number))

        await asyncio.gather(*(one(number) for number in range(count)))
        wrong = [n for n in range(count) if run.came[f"ro-{n}", 1] != exact(ask(n))]
        assert not wrong
        assert proxy.cuts >= count // 125
        # Each ran once: no start was lost, none was taken for two.
        assert len({one.rollout_id for one in agent.requests}) == len(agent.requests) == count
        # A cut may have taken the last acknowledgement along; the next connection says it again.
        # One that came when nothing was in flight any more ended the stream.
        proxy.cut_after = None
        while len(buffer_of(agent)) and run.stream.broken is None:
            count += 1
            await run.one(ask(count))
            await asyncio.sleep(0.1)


async def test_what_is_not_stored_is_kept() -> None:
    agent = CollectAgent()
    async with collecting(agent) as (run, _):
        first, second = ask(1), ask(2)
        for request in (first, second):
            await run.stream.run(request, timeout_s=9, on_event=lambda event: None, held=True)
        assert len(buffer_of(agent)) == 10
        run.stream.stored(("ro-2", 1))
        run.stream.stored(("ro-1", 1))
        await until(lambda: len(buffer_of(agent)) == 0)
