"""A fake model endpoint in a process of its own: python -m tests.scale.rollout_bench.endpoint.

Speaks Responses and Chat Completions, and answers at once, or after a uniform random time: a
function call first, a message once the conversation holds its output. Prints its port. A line of
standard input with two numbers sets the shortest and the longest latency of later calls, in
seconds; each line is answered with how many calls are in flight. Ends when its input does.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from typing import Any, Final

import orjson
from aiohttp import web

USAGE: Final = {"input_tokens": 40, "output_tokens": 12, "total_tokens": 52}
ARGUMENTS: Final = '{"left": 2, "right": 3}'
TEXT: Final = "The sum is 5"
_NUMBERS: Final = itertools.count(1)
CALL = {
    "id": "resp_NUMBER",
    "object": "response",
    "created_at": 1,
    "model": "fake",
    "status": "completed",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "add",
            "arguments": ARGUMENTS,
            "status": "completed",
        }
    ],
    "usage": {
        **USAGE,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    },
}
ANSWER = {
    **CALL,
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
        }
    ],
}


def _chat(message: dict[str, Any], finish: str) -> bytes:
    return orjson.dumps(
        {
            "id": "chatcmpl-NUMBER",
            "object": "chat.completion",
            "created": 1,
            "model": "fake",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", **message},
                    "finish_reason": finish,
                    "logprobs": None,
                }
            ],
            "usage": {"prompt_tokens": 40, "completion_tokens": 12, "total_tokens": 52},
        }
    )


_CALL, _ANSWER = orjson.dumps(CALL), orjson.dumps(ANSWER)
_FUNCTION = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "add", "arguments": ARGUMENTS},
}
_CHAT_CALL = _chat({"content": None, "tool_calls": [_FUNCTION]}, "tool_calls")
_CHAT_ANSWER = _chat({"content": TEXT}, "stop")


class Endpoint:
    """Answers after `latency_s`, shortest and longest, which may change at any time."""

    def __init__(self) -> None:
        self.latency_s = (0.0, 0.0)
        self.in_flight = 0

    async def responses(self, request: web.Request) -> web.Response:
        """POST /v1/responses."""
        body = orjson.loads(await request.read())
        done = any(item.get("type") == "function_call_output" for item in body["input"])
        return await self._late(_ANSWER if done else _CALL)

    async def chat(self, request: web.Request) -> web.Response:
        """POST /v1/chat/completions."""
        body = orjson.loads(await request.read())
        done = any(message["role"] == "tool" for message in body["messages"])
        return await self._late(_CHAT_ANSWER if done else _CHAT_CALL)

    async def _late(self, body: bytes) -> web.Response:
        if self.latency_s[1]:
            self.in_flight += 1
            await asyncio.sleep(random.uniform(*self.latency_s))
            self.in_flight -= 1
        # As endpoints do, it gives each answer an id of its own.
        body = body.replace(b"NUMBER", b"%d" % next(_NUMBERS), 1)
        return web.Response(body=body, content_type="application/json")


async def main() -> None:
    """Serves until standard input ends."""
    endpoint = Endpoint()
    app = web.Application()
    app.router.add_post("/v1/responses", endpoint.responses)
    app.router.add_post("/v1/chat/completions", endpoint.chat)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=16384).start()
    print(runner.addresses[0][1], flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        if numbers := line.split():
            endpoint.latency_s = float(numbers[0]), float(numbers[1])
        print(endpoint.in_flight, flush=True)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
