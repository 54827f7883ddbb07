"""The relay is killed while rollouts run, and started again: no rollout is lost or doubled."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.support.relayed_training import train
from tests.support.served import Served, serve

pytestmark = pytest.mark.long

MESH: Final = {
    "models": {},
    "environments": {"talk": {"use": "tests.unit.trainers.environments:Talk"}},
    "relays": {"door": {}},
    "defaults": {"environment": "talk"},
}


async def test_a_relay_is_killed_and_started_again(tmp_path: Path) -> None:
    config = tmp_path / "mesh.json"
    config.write_text(json.dumps(MESH))
    async with AsyncExitStack() as stack:

        async def start(kind: str, name: str, *more: str) -> Served:
            words: list[str | Path] = [kind, *([name] if name else []), "--config", config, *more]
            served = await serve(*words, log=tmp_path / f"{kind}.log")
            stack.push_async_callback(served.kill)
            return served

        registry = ("--discovery", (await start("discovery", "")).said["address"])
        await start("environment", "talk", *registry)
        agent = await start("agent", "tool_loop", *registry)
        relay = await start("relay", "door", *registry)
        address = relay.said["address"]
        began = asyncio.Queue[int]()
        training = asyncio.create_task(
            train(
                agent.said["address"], address, tasks=8, repeats=8, concurrency=16,
                told=began.put_nowait, max_attempts=5,
            )
        )  # fmt: skip
        try:
            async with asyncio.timeout(300):
                for number in (60, 180):
                    while await began.get() < number:
                        pass
                    await relay.kill()
                    port = address.rpartition(":")[2]
                    relay = await start("relay", "door", *registry, "--port", port)
                found = await training
        finally:
            training.cancel()
    assert found.problems == []
    assert (found.rollouts, found.failed, found.unscored) == (64, {}, 0), found
    assert found.rewards == {1.0: 64}
    assert found.tokens_in_rows == found.tokens_trained
    # Answers that are in no rollout are those of attempts that failed.
    assert bool(found.lost) <= bool(found.retried)
