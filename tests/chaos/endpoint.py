"""The policy's endpoint, a process of its own: python -m tests.chaos.endpoint HOST PORT SLOWEST_S.

It serves Chat Completions and Responses, knows every task's answer (see till_tasks.py), and takes
orders as JSON lines on standard input: {"storm": "429", "share": 0.5} until {"storm": ""}. It
says "ready" once it listens and ends when standard input does.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
from typing import Any

from aiohttp import web

from tests.chaos.till_tasks import Wanted, wanted_of

Json = dict[str, Any]

# As endpoints do, it gives each answer an id of its own.
_NUMBERS = itertools.count(1)


class Endpoint:
    """Answers, or misbehaves as ordered."""

    def __init__(self, slowest_s: float) -> None:
        self._slowest_s = slowest_s
        self._storm = ""
        self._share = 1.0

    def order(self, line: str) -> None:
        """Take an order."""
        said = json.loads(line)
        self._storm, self._share = said["storm"], said.get("share", 1.0)

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """One call of either API."""
        body = json.loads(await request.read())
        await asyncio.sleep(random.uniform(0.1, 1.0) * self._slowest_s)
        if self._storm and random.random() < self._share:
            return await self._misbehave(request)
        chat = request.path.endswith("/chat/completions")
        return web.json_response(chat_answer(body) if chat else responses_answer(body))

    async def _misbehave(self, request: web.Request) -> web.StreamResponse:
        if self._storm == "hang":
            await asyncio.sleep(3600)
        if self._storm == "429":
            return _error(429, {"Retry-After": "1"})
        if self._storm == "500":
            return _error(500, {})
        if self._storm == "truncate":
            half = web.StreamResponse(headers={"Content-Length": "900"})
            await half.prepare(request)
            await half.write(b'{"id": "resp_1", "output": [')
        if request.transport is not None:
            request.transport.abort()
        return web.Response()


def chat_answer(body: Json) -> Json:
    """A chat completion."""
    messages = body["messages"]
    wanted = wanted_of(next(_text(one) for one in messages if one["role"] == "user"))
    message: Json = {"role": "assistant", "content": None}
    rang = any(one["role"] == "tool" for one in messages)
    if rang:
        message["content"] = wanted.text
    else:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": "ring", "arguments": said}}
            for call_id, said in _calls(wanted)
        ]
    spent = {"prompt_tokens": 40, "completion_tokens": 12, "total_tokens": 52}
    choice = {"index": 0, "message": message, "finish_reason": "stop" if rang else "tool_calls"}
    head: Json = {
        "id": f"chat_{next(_NUMBERS)}",
        "object": "chat.completion",
        "created": 1,
        "model": "fake",
    }
    return {**head, "choices": [choice], "usage": spent}


def responses_answer(body: Json) -> Json:
    """A response."""
    items = body["input"]
    wanted = wanted_of(next(_text(one) for one in items if one.get("role") == "user"))
    output: list[Json]
    if any(one.get("type") == "function_call_output" for one in items):
        part = {"type": "output_text", "text": wanted.text, "annotations": []}
        head = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        output = [{**head, "content": [part]}]
    else:
        output = [
            {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": "ring",
             "arguments": said, "status": "completed"}
            for call_id, said in _calls(wanted)
        ]  # fmt: skip
    spent = {"input_tokens": 40, "output_tokens": 12, "total_tokens": 52}
    top: Json = {
        "id": f"resp_{next(_NUMBERS)}",
        "object": "response",
        "created_at": 1,
        "model": "fake",
    }
    return {**top, "status": "completed", "output": output, "usage": spent}


def _calls(wanted: Wanted) -> list[tuple[str, str]]:
    return [
        (f"call_{index}", json.dumps({"amount": amount}))
        for index, amount in enumerate(wanted.rung)
    ]


def _text(message: Json) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _error(status: int, headers: dict[str, str]) -> web.Response:
    body = {"error": {"message": "a storm", "type": "error", "code": None}}
    return web.json_response(body, status=status, headers=headers)


async def main(host: str, port: int, slowest_s: float) -> None:
    """Serves until standard input ends."""
    endpoint = Endpoint(slowest_s)
    app = web.Application()
    for path in ("/v1/responses", "/v1/chat/completions"):
        app.router.add_post(path, endpoint.respond)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, host, port, reuse_address=True).start()
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        endpoint.order(line)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
