"""Plays all tasks by the standard's own client; prints the rewards of each episode's calls as JSON.

their_loop.py URL
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from ors.client import AsyncORS
from ors.client._types import ToolCallError

sys.path.insert(0, str(Path(__file__).parent))

import policy  # type: ignore[import-not-found]  # beside this file


async def main() -> None:
    client = AsyncORS(base_url=sys.argv[1])
    environment = client.environment("sums")
    played = []
    for index in range(await environment.num_tasks("train")):
        async with environment.session(split="train", index=index) as session:
            shown = [(await session.get_prompt())[0].text]
            rewards, finished = [], False
            while not finished:
                name, arguments = policy.sums(shown)
                try:
                    output = await session.call_tool(name, arguments)
                except ToolCallError as error:
                    shown.append(str(error))
                    continue
                shown.append(output.blocks[0].text)
                rewards.append(output.reward)
                finished = output.finished
        played.append(rewards)
    print(json.dumps(played))


asyncio.run(main())
