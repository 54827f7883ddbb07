"""The floor: the same work in a bare aiohttp loop, with no framework at all."""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import orjson

from tests.scale.rollout_bench import talk


async def _rollout(session: aiohttp.ClientSession, url: str, out: list[bytes]) -> None:
    tools = [{"type": "function", "name": "add", "parameters": {"type": "object"}}]
    items: list[dict[str, object]] = [{"role": "user", "content": "What is 2 + 3?"}]
    while True:
        body = orjson.dumps({"model": "fake", "input": items, "tools": tools})
        async with session.post(url, data=body) as reply:
            answer = orjson.loads(await reply.read())
        items += answer["output"]
        calls = [item for item in answer["output"] if item["type"] == "function_call"]
        if not calls:
            break
        for call in calls:
            given = orjson.loads(call["arguments"])
            output = str(given["left"] + given["right"])
            done = {"type": "function_call_output", "call_id": call["call_id"], "output": output}
            items.append(done)
    text = answer["output"][0]["content"][0]["text"]
    out.append(orjson.dumps({"input": items, "reward": float("5" in text)}))


async def main(url: str) -> None:
    """Serves the bench until its input ends."""
    say = talk.take_stdout()
    connector = aiohttp.TCPConnector(limit=0)
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def run(rollouts: int, in_flight: int) -> None:
            out: list[bytes] = []
            await talk.spread(rollouts, in_flight, lambda: _rollout(session, where, out))

        where = f"{url}/responses"
        await talk.answer(say, {"version": aiohttp.__version__}, run)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
