"""A policy whose answers are in the prompt, at a Responses endpoint: the same for every caller.

A plan is a list of answers; an answer is a list of texts and of calls, `[name, arguments]`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from aiohttp import web

Plan: TypeAlias = Sequence[Sequence[str | tuple[str, dict[str, Any]]]]
_MARK: Final = "PLAN "
_ids = itertools.count()


def prompt(plan: Plan, text: str = "Do as the plan says.") -> list[dict[str, Any]]:
    """The input of a task whose policy does as planned."""
    return [{"role": "user", "content": f"{text}\n{_MARK}{json.dumps(plan)}"}]


class PlannedPolicy:
    """The endpoint's application. hold: while it is not set, answers wait; asked: set by a call."""

    def __init__(self) -> None:
        self.hold = asyncio.Event()
        self.hold.set()
        self.asked = asyncio.Event()
        self.app = web.Application(client_max_size=1 << 26)
        self.app.router.add_post("/v1/responses", self._answer)

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.set()
        await self.hold.wait()
        return web.json_response(_response(body))


def _response(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"resp_{next(_ids)}",
        "object": "response",
        "created_at": 1,
        "model": body.get("model", "policy"),
        "status": "completed",
        "incomplete_details": None,
        "error": None,
        "output": _next(body["input"]),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 5,
            "output_tokens": 3,
            "total_tokens": 8,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def _next(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answer that follows what was said so far; a last word when the plan is done."""
    said = sum(
        one.get("type") == "function_call" or one.get("role") == "assistant" for one in items
    )
    for answer in _plan(items):
        if not said:
            return [_item(part) for part in answer]
        said -= len(answer)
    return [_item("I am done.")]


def _plan(items: Sequence[dict[str, Any]]) -> Any:
    for item in items:
        text = json.dumps(item.get("content"))
        if item.get("role") == "user" and _MARK in text:
            content = item["content"]
            parts = [content] if isinstance(content, str) else [one["text"] for one in content]
            found = next(part for part in parts if _MARK in part)
            return json.loads(found.partition(_MARK)[2])
    raise web.HTTPBadRequest(text="no plan")


def _item(part: Any) -> dict[str, Any]:
    number = next(_ids)
    if isinstance(part, str):
        content = [{"type": "output_text", "text": part, "annotations": []}]
        return {
            "type": "message",
            "id": f"msg_{number}",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
    name, arguments = part
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": name,
        "arguments": json.dumps(arguments),
        "status": "completed",
    }
