"""What an MCP tool answered, as a model is shown it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gymmesh.responses.v1 import responses_pb2
from gymmesh_responses import dumps, item_from_json

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock


def answer(result: CallToolResult) -> str | responses_pb2.ContentParts:
    """Text where all is text, else text and images in order.

    Audio and binary resources are named rather than shown: Responses tools have no such output.
    """
    if any(block.type == "image" for block in result.content):
        return _parts(result.content)
    return text(result)


def text(result: CallToolResult) -> str:
    """The answer as text; its structured content only where there is nothing else."""
    if not result.content and result.structured_content is not None:
        return dumps(result.structured_content).decode()
    return "\n".join(map(_text, result.content))


def _text(block: ContentBlock) -> str:
    match block.type:
        case "text":
            return block.text
        case "resource":
            inside = getattr(block.resource, "text", None)
            return f"[resource {block.resource.uri}]" if inside is None else str(inside)
        case "resource_link":
            return f"[resource {block.uri}: {block.description or block.name}]"
    return f"[{block.type} {block.mime_type}]"


def _parts(blocks: Sequence[ContentBlock]) -> responses_pb2.ContentParts:
    output: list[dict[str, Any]] = [
        {"type": "input_image", "image_url": f"data:{block.mime_type};base64,{block.data}"}
        if block.type == "image"
        else {"type": "input_text", "text": _text(block)}
        for block in blocks
    ]
    item = item_from_json({"type": "function_call_output", "call_id": "", "output": output})
    return item.function_call_output.parts
