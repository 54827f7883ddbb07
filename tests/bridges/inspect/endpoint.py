"""A model that follows what it is asked and is sometimes wrong, as OpenAI's Chat Completions."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

_SUM: Final = re.compile(r"(\d+) \+ (\d+)\?")
_CHOICE: Final = re.compile(r"Which is (\d+)\?")
_FILE: Final = re.compile(r"Write (\d+) into out\.txt")


@asynccontextmanager
async def endpoint() -> AsyncIterator[str]:
    """Its URL, which ends in /v1."""
    async with serving(_answer) as url:
        yield url


@asynccontextmanager
async def serving(answer: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[str]:
    """The URL of an endpoint that answers so."""
    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def _answer(request: web.Request) -> web.Response:
    body = await request.json()
    message = reply(body["messages"], {one["function"]["name"] for one in body.get("tools") or ()})
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return web.json_response(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "scripted",
            "choices": [choice],
            "usage": usage,
        }
    )


def reply(messages: list[Mapping[str, Any]], tools: set[str]) -> dict[str, Any]:
    """The next message of a conversation; the same one for the same conversation."""
    asked = next(_text(one) for one in messages if one["role"] == "user")
    told = [_text(one) for one in messages if one["role"] == "tool"]
    chance = zlib.crc32(asked.encode()) % 5
    if "[BEGIN DATA]" in asked:  # Inspect's question to a grader
        return _says(f"GRADE: {'CIPCC'[chance]}")
    if found := _SUM.search(asked):
        right = int(found[1]) + int(found[2])
        if "add" in tools and not told and chance < 3:
            return _calls("add", {"a": int(found[1]), "b": int(found[2])})
        answer = str(right + (chance == 1))
        return _calls("submit", {"answer": answer}) if "submit" in tools else _says(answer)
    if found := _CHOICE.search(asked):
        return _says(f"ANSWER: {'CCBCA'[chance]}")
    if (found := _FILE.search(asked)) and not told and chance != 2:
        number = int(found[1]) + (chance == 1)
        return _calls("bash", {"command": f"echo {number} >out.txt"})
    return _says("Done.")


def _says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _calls(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{name}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _text(message: Mapping[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""
