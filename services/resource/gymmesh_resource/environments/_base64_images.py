"""Images that a remote server sends as base64. Pure.

The type that a server declares is ignored: only the bytes decide whether a part is an image.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh_responses import MOST_IMAGE_BYTES, data_url, image_type, item_from_json

# Base64 writes three bytes as four characters.
_MOST_CHARS: Final = MOST_IMAGE_BYTES * 4 // 3 + 4


def image_url(encoded: str) -> str:
    """The data URL of an image; empty if it is not a PNG, JPEG, GIF or WebP of at most 20 MB."""
    if len(encoded) > _MOST_CHARS:
        return ""
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return ""
    kind = image_type(data)
    return "" if kind is None else data_url(kind, data)


def text_part(text: str) -> dict[str, Any]:
    """Text as a part of a message or of a tool's answer."""
    return {"type": "input_text", "text": text}


def image_part(url: str) -> dict[str, Any]:
    """An image as a part of a message or of a tool's answer."""
    return {"type": "input_image", "image_url": url}


def tool_answer(parts: Sequence[Mapping[str, Any]]) -> str | responses_pb2.ContentParts:
    """A tool's answer: text where all parts are text, a line break between two of them."""
    if all(part["type"] == "input_text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    output = {"type": "function_call_output", "call_id": "", "output": list(parts)}
    return item_from_json(output).function_call_output.parts


def user_message(parts: Sequence[Mapping[str, Any]]) -> responses_pb2.Item:
    """A user's message of these parts."""
    content: Any = list(parts)
    if len(content) == 1 and content[0]["type"] == "input_text":
        content = content[0]["text"]
    return item_from_json({"type": "message", "role": "user", "content": content})
