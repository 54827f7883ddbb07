"""Plays episodes by OpenEnv's own client; prints the rewards of each episode's steps as JSON.

their_loop.py URL corridor|tools EPISODES
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from openenv.core.generic_client import GenericEnvClient

sys.path.insert(0, str(Path(__file__).parent))

import policy  # type: ignore[import-not-found]  # beside this file


async def corridor(env: Any, seed: int) -> list[Any]:
    result = await env.reset(seed=seed)
    seen, rewards = [result.observation], []
    while not result.done and (action := policy.corridor(seen)) is not None:
        result = await env.step(action)
        seen.append(result.observation)
        rewards.append(result.reward)
    return rewards


async def tools(env: Any, seed: int) -> list[Any]:
    result = await env.reset(seed=seed)
    seen: list[str] = []
    rewards = []
    while not result.done and (call := policy.tools(seen)) is not None:
        action = {"type": "call_tool", "tool_name": call[0], "arguments": call[1]}
        result = await env.step(action)
        answer = result.observation
        seen.append(answer["result"]["content"][0]["text"] if answer["result"] else "failed")
        rewards.append(result.reward)
    return rewards


async def main() -> None:
    url, kind, episodes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    play = corridor if kind == "corridor" else tools
    played = []
    for seed in range(episodes):
        # Its default times are for machines that do nothing else.
        async with GenericEnvClient(
            base_url=url,
            connect_timeout_s=300.0,
            message_timeout_s=600.0,
            websocket_ping_timeout_s=300.0,
        ) as env:
            played.append(await play(env, seed))
    print(json.dumps(played))


asyncio.run(main())
