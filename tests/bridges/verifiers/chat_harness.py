"""A harness in the process of verifiers: a chat loop with the tools of MCP servers.

verifiers' own `null` does the same in a process of its own for each segment, which takes seconds.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

import httpx
import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.mcp import mcp_client

__all__ = ["ChatHarness"]


class ChatHarness(vf.Harness[vf.HarnessConfig]):
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False
    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
        **_: Any,
    ) -> vf.ProgramResult:
        system, prompt = self.resolve_prompt(data)
        given = [vf.UserMessage(content=prompt)] if isinstance(prompt, str) else list(prompt or ())
        messages = [message_to_wire(message) for message in given]
        if system:
            messages.insert(0, {"role": "system", "content": system})
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(httpx.AsyncClient(timeout=60))
            (url,) = mcp_urls.values()
            server = await stack.enter_async_context(mcp_client({"url": url}))
            tools = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description or "",
                        "parameters": tool.input_schema,
                    },
                }
                for tool in (await server.list_tools()).tools
            ]
            while True:
                answer = await client.post(
                    f"{endpoint}/chat/completions",
                    headers={"Authorization": f"Bearer {secret}"},
                    json={"model": ctx.model, "messages": messages, "tools": tools or None},
                )
                if answer.is_error:
                    # A stop is no failure: verifiers knows.
                    return vf.ProgramResult(exit_code=1, stdout="", stderr=answer.text)
                said = answer.json()["choices"][0]["message"]
                messages.append(said)
                if not said.get("tool_calls"):
                    return vf.ProgramResult(exit_code=0, stdout="", stderr="")
                for call in said["tool_calls"]:
                    function = call["function"]
                    result = await server.call_tool(
                        function["name"], json.loads(function["arguments"])
                    )
                    text = "".join(part.text for part in result.content)
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
