"""What an MCP tool answered, as a model is shown it.

A server is not trusted: an image is one whose bytes are, whatever type the server gives it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh_responses import MOST_IMAGE_BYTES, data_url, dumps, image_type, item_from_json

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock


# Base64 writes three bytes as four characters.
_MOST_CHARS: Final = MOST_IMAGE_BYTES * 4 // 3 + 4


def answer(result: CallToolResult) -> str | responses_pb2.ContentParts:
    """Text where all is text, else text and images in order.

    Audio, binary resources, and images that models don't read are named rather than shown.
    """
    images = [_image(block) for block in result.content]
    return _parts(result.content, images) if any(images) else text(result)


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


def _image(block: ContentBlock) -> str:
    """The data URL of an image, or of a resource that is one; empty for anything else."""
    if block.type == "image":
        encoded = block.data
    elif block.type == "resource":
        encoded = getattr(block.resource, "blob", "")
    else:
        return ""
    if len(encoded) > _MOST_CHARS:
        return ""
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return ""
    kind = image_type(data)
    return "" if kind is None else data_url(kind, data)


def _parts(blocks: Sequence[ContentBlock], images: Sequence[str]) -> responses_pb2.ContentParts:
    output: list[dict[str, Any]] = [
        {"type": "input_image", "image_url": image}
        if image
        else {"type": "input_text", "text": _text(block)}
        for block, image in zip(blocks, images, strict=True)
    ]
    item = item_from_json({"type": "function_call_output", "call_id": "", "output": output})
    return item.function_call_output.parts
