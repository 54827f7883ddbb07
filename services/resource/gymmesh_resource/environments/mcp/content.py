"""The answer of an MCP tool, as the model sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource.environments._base64_images import (
    image_part,
    image_url,
    text_part,
    tool_answer,
)
from gymmesh_responses import dumps

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock


def answer(result: CallToolResult) -> str | responses_pb2.ContentParts:
    """Text where all is text, else text and images in order.

    Audio, binary resources, and images that models don't read are named rather than shown.
    """
    images = [_image(block) for block in result.content]
    if not any(images):
        return text(result)
    return tool_answer(
        [
            image_part(image) if image else text_part(_text(block))
            for block, image in zip(result.content, images, strict=True)
        ]
    )


def text(result: CallToolResult) -> str:
    """The answer as text; its structured content only if it has no other content."""
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
        return image_url(block.data)
    if block.type == "resource":
        return image_url(getattr(block.resource, "blob", ""))
    return ""
