"""A consumer's connection is cut: it continues, or learns that it was taken for dead."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import Collector, RunIdentity
from gymmesh_client.control import (
    CollectorRun,
    GroupConsumer,
    RemoteRun,
    StreamServer,
    find_run,
    runs_at,
    stream_security,
)
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import SecurityConfig
from tests.support.proxy import Proxy
from tests.support.rollouts import ScriptedAgent
from tests.unit.client.test_collect import collector, good, tasks

WAIT_S = 120.0


@asynccontextmanager
async def through_a_proxy(
    run: Collector, count: int, folder: Path
) -> AsyncIterator[tuple[RemoteRun, RemoteRun, Proxy]]:
    """A run as the first rank sees it, whose connection the proxy can cut, and as others do."""
    token = folder / "ranks.token"
    token.write_text("a-token-of-some-length\n")
    shown = SecurityConfig(token_file=str(token))
    handle = CollectorRun(run, requested=count, shown="", identity=RunIdentity("", ""))
    async with StreamServer("127.0.0.1", 0, stream_security(None, str(token))) as server:
        server.add(handle)
        port = int(server.address.rpartition(":")[2])
        async with (
            Proxy(port) as proxy,
            runs_at(proxy.address, shown) as cut,
            runs_at(server.address, shown) as others,
            asyncio.timeout(WAIT_S),
        ):
            collecting = asyncio.create_task(run.run(tasks(count)))
            yield find_run(cut, ""), find_run(others, ""), proxy
            await collecting


async def all_of(consumer: GroupConsumer, found: list[str]) -> list[str]:
    while reply := await consumer.next(WAIT_S):
        found.append(reply.task.task_id)
        await consumer.acknowledge()
    await consumer.close()
    return found


@pytest.mark.parametrize("seed", [1, 2])
async def test_cuts_at_any_byte_lose_and_repeat_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    run, _ = collector(tmp_path, ScriptedAgent(good), concurrency=4, hand_out=8)
    async with through_a_proxy(run, 200, tmp_path) as (cut, others, proxy):
        proxy.cut_after = lambda: chance.randint(2_000, 12_000)
        proxy.cut()
        ranks = [cut.consumer("rank-0", consumers=2), others.consumer("rank-1", consumers=2)]
        found: list[list[str]] = [[], []]
        await asyncio.gather(*map(all_of, ranks, found))
        assert proxy.cuts > 3
    assert Counter([*found[0], *found[1]]) == Counter(f"t-{number}" for number in range(200))
    assert found[0]
    assert run.shared_stream.shares.redelivered == 0


async def test_one_that_was_away_for_longer_than_the_lease_drops_what_it_holds(
    tmp_path: Path,
) -> None:
    run, _ = collector(
        tmp_path, ScriptedAgent(good), concurrency=4, hand_out=8, consumer_lease_s=0.5
    )
    async with through_a_proxy(run, 60, tmp_path) as (cut, others, proxy):
        away = cut.consumer("rank-0", consumers=2)
        other = others.consumer("rank-1", consumers=2)
        taken: list[str] = []
        going = asyncio.create_task(all_of(other, taken))
        kept: Any = await away.next(WAIT_S)
        assert kept is not None
        proxy.refuse = True
        proxy.cut()
        # All groups but those that it holds, and then these, too.
        while len(taken) < 60:  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.02)
        proxy.heal()
        with pytest.raises(MeshError) as error:
            await away.acknowledge()
        assert error.value.metadata["cause"] == "lease"
        await away.close()
        assert await all_of(cut.consumer("rank-0", consumers=2), []) == []
        await going
    assert Counter(taken) == Counter(f"t-{number}" for number in range(60))
    assert kept.task.task_id in taken
