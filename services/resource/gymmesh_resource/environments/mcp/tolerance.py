"""Corrects frequent errors of servers, before the client library rejects the whole answer.

The library checks each answer as a whole: one tool without a schema, or one content part of an
unknown kind, would make it reject all tools or parts. Functions on results are pure.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

_LOGGER = logging.getLogger("gymmesh.resource.mcp")
_PARTS: Final = frozenset(("text", "image", "audio", "resource", "resource_link"))
_ANSWER_KEYS: Final = ("structuredContent", "isError")


@asynccontextmanager
async def mending(transport: Any) -> AsyncIterator[tuple[Any, Any]]:
    """A transport whose incoming results are mended."""
    import anyio

    async with transport as (incoming, outgoing):
        send, receive = anyio.create_memory_object_stream[Any](0)

        async def forward() -> None:
            async with send:
                async for message in incoming:
                    await send.send(_mended_message(message))

        async with anyio.create_task_group() as group, receive:
            group.start_soon(forward)
            yield receive, outgoing
            group.cancel_scope.cancel()


def mended(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result of any method, as the protocol wants it where its meaning is plain."""
    whole = dict(result)
    if isinstance(whole.get("tools"), list):
        whole["tools"] = [one for tool in whole["tools"] if (one := _tool(tool)) is not None]
        if whole.get("nextCursor") == "":
            del whole["nextCursor"]
    if "content" not in whole and any(key in whole for key in _ANSWER_KEYS):
        whole["content"] = []
    if isinstance(whole.get("content"), list):
        whole["content"] = [_part(part) for part in whole["content"]]
    return whole


def _mended_message(message: Any) -> Any:
    """A message of the transport; requests, notifications and errors stay as they are."""
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCResponse

    if not isinstance(message, SessionMessage) or not isinstance(message.message, JSONRPCResponse):
        return message
    response = message.message.model_copy(update={"result": mended(message.message.result)})
    return SessionMessage(response, message.metadata)


def _tool(tool: Any) -> dict[str, Any] | None:
    """A tool whose schema is an object; None for one without a name."""
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        _LOGGER.warning("skipped a tool of an MCP server: the tool has no name")
        return None
    if not isinstance(tool.get("inputSchema"), dict):
        return tool | {"inputSchema": {"type": "object"}}
    return tool


def _part(part: Any) -> Any:
    """A part of an answer; one of an unknown kind as text, so that the model sees it."""
    if isinstance(part, dict) and part.get("type") in _PARTS:
        return part
    text = part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)
    return {"type": "text", "text": text}
