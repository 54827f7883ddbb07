"""The benchmark's environment for verifiers: an agent loop of its own, one tool, string match.

The loop runs in the process, which its `Harness` allows; each model call goes through its
interception endpoint, as its contract asks, so that its trace is the record of the rollout.
"""

# What it imports lies in another environment.
# mypy: disable-error-code="import-not-found,misc,untyped-decorator"

from __future__ import annotations

import json
from typing import Any

import aiohttp
import verifiers.v1 as vf

_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"left": {"type": "integer"}, "right": {"type": "integer"}},
                "required": ["left", "right"],
            },
        },
    }
]
_HTTP: list[aiohttp.ClientSession] = []


def _http() -> aiohttp.ClientSession:
    if not _HTTP:
        _HTTP.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
    return _HTTP[0]


class AdderTask(vf.Task):
    """What is 2 + 3?"""

    @vf.reward
    async def matches(self, trace: vf.Trace) -> float:
        """Whether the last message has the sum."""
        return float("5" in (trace.last_reply or ""))


class AdderTaskset(vf.Taskset[AdderTask]):
    """One task."""

    def load(self) -> list[AdderTask]:
        return [AdderTask(vf.TaskData(prompt="What is 2 + 3?"))]


class AdderHarness(vf.Harness):
    """Model, tool, model, in this process."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: Any,
        data: Any,
    ) -> Any:
        """The whole conversation with the model."""
        messages: list[dict[str, Any]] = [{"role": "user", "content": data.prompt}]
        headers = {"Authorization": f"Bearer {secret}"}
        while True:
            body = {"model": ctx.model, "messages": messages, "tools": _TOOLS}
            url = f"{endpoint.rstrip('/')}/chat/completions"
            async with _http().post(url, json=body, headers=headers) as reply:
                reply.raise_for_status()
                message = (await reply.json())["choices"][0]["message"]
            messages.append(message)
            if not message.get("tool_calls"):
                return vf.ProgramResult(exit_code=0, stdout="", stderr="")
            for call in message["tool_calls"]:
                given = json.loads(call["function"]["arguments"])
                output = str(given["left"] + given["right"])
                done = {"role": "tool", "tool_call_id": call["id"], "content": output}
                messages.append(done)


__all__ = ["AdderHarness", "AdderTaskset"]
