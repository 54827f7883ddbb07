"""What an MCP tool answered: images are images by their bytes, and the rest is named."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)

from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource.environments.mcp.content import answer
from gymmesh_responses import item_to_dict
from tests.support.images import image_part, png

GIF = base64.b64encode(b"GIF89a" + bytes(9)).decode()
SVG = base64.b64encode(b"<svg onload='harm()'/>").decode()
PNG = base64.b64encode(png(1)).decode()


def shown(*content: Any) -> Any:
    found = answer(CallToolResult(content=list(content)))
    if isinstance(found, str):
        return found
    output = responses_pb2.FunctionCallOutput(parts=found)
    document: Any = item_to_dict(responses_pb2.Item(function_call_output=output))
    return document["output"]


def blob(mime_type: str, data: str) -> EmbeddedResource:
    resource = BlobResourceContents(uri="file:///a", mime_type=mime_type, blob=data)
    return EmbeddedResource(resource=resource)


def test_texts_and_images_keep_their_order() -> None:
    found = shown(
        TextContent(text="see"),
        ImageContent(data=PNG, mime_type="image/png"),
        EmbeddedResource(resource=TextResourceContents(uri="file:///b", text="inside")),
        AudioContent(data="AAAA", mime_type="audio/wav"),
    )
    assert found == [
        {"type": "input_text", "text": "see"},
        image_part(1),
        {"type": "input_text", "text": "inside"},
        {"type": "input_text", "text": "[audio audio/wav]"},
    ]


def test_a_resource_that_is_an_image_is_one() -> None:
    assert shown(blob("image/png", PNG)) == [image_part(1)]
    assert (
        shown(blob("application/zip", base64.b64encode(b"PK").decode())) == "[resource file:///a]"
    )


def test_the_type_is_that_of_the_bytes() -> None:
    url = f"data:image/gif;base64,{GIF}"
    assert shown(ImageContent(data=GIF, mime_type="image/png")) == [
        {"type": "input_image", "image_url": url}
    ]


@pytest.mark.parametrize("data", [SVG, "not base64!", "", PNG[:3]])
def test_what_is_not_an_image_is_named(data: str) -> None:
    assert shown(ImageContent(data=data, mime_type="image/png")) == "[image image/png]"
