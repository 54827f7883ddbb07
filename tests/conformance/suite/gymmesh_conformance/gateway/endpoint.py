"""An OpenAI endpoint that answers by a script: the model of a gateway that calls one.

script = Script()
async with scripted_endpoint(script) as url:    # http://127.0.0.1:PORT/v1
    …                                           # have the gateway under test call it
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from gymmesh_conformance.gateway.adapter import Script, WrittenAnswer

_MAX_BODY_BYTES: Final = 64_000_000


@asynccontextmanager
async def scripted_endpoint(script: Script, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """Serve Chat Completions, whole or streamed, at a free port; the address for `base_url`."""

    async def complete(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        message = _message(await script.next_answer())
        if not asked.get("stream"):
            return web.json_response(_document("chat.completion", asked, message=message))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for place, call in enumerate(message.get("tool_calls", ())):
            call["index"] = place
        chunk = _document("chat.completion.chunk", asked, delta=message)
        await response.write(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode())
        return response

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})

    application = web.Application(client_max_size=_MAX_BODY_BYTES)
    application.router.add_post("/v1/chat/completions", complete)
    application.router.add_get("/v1/models", models)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, 0).start()
        port = runner.addresses[0][1]
        yield f"http://{host}:{port}/v1"
    finally:
        await runner.cleanup()


def _message(answer: WrittenAnswer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{place}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for place, call in enumerate(answer.calls)
        ]
    return message


def _document(kind: str, asked: dict[str, Any], **what: dict[str, Any]) -> dict[str, Any]:
    calls = any("tool_calls" in message for message in what.values())
    choice = {"index": 0, "finish_reason": "tool_calls" if calls else "stop", **what}
    return {
        "id": "chatcmpl-script",
        "object": kind,
        "created": 0,
        "model": asked.get("model", "m"),
        "choices": [choice],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
