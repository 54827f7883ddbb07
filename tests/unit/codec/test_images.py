"""Images in items: their data URLs become media URLs and come back to the letter."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_responses import (
    image_type,
    image_urls,
    item_from_json,
    item_to_dict,
    media_url,
    media_urls,
    media_urls_in_json,
    medium_of,
    with_images,
    with_images_in_json,
)
from tests.support.images import image_part, png, png_url

TEXT = {"type": "input_text", "text": "see gymmesh-media:sha256:00"}
MESSAGE = {"type": "message", "role": "user", "content": [TEXT, image_part(1), image_part(2)]}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": [image_part(1), TEXT]}
FAR = {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"}
UPLOADED = {"type": "input_image", "file_id": "f-1"}


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (png(), "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89arest", "image/gif"),
        (b"RIFF0000WEBPrest", "image/webp"),
        (b"RIFF0000WAVErest", None),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", None),
        (b"<!doctype html>", None),
        (b"", None),
    ],
)
def test_an_image_is_told_by_its_first_bytes(data: bytes, kind: str | None) -> None:
    assert image_type(data) == kind


@given(st.binary(max_size=40), st.sampled_from(["image/png", "image/svg+xml", "application/pdf"]))
def test_a_data_url_comes_back_from_its_medium(data: bytes, media_type: str) -> None:
    url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    medium = medium_of(url)
    assert medium is not None
    assert medium.data == data
    assert media_urls([medium]) == {media_url(medium.digest): url}


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a.png",
        "gymmesh-media:sha256:00",
        "data:image/png,abc",
        "data:image/png;base64,QQ",  # without its padding
        "data:image/png;base64,QR==",  # with bits that no byte has
        "data:image/png;base64,Q Q==",
        "data:image/png;base64,QQ==\n",
        "data:image/png;charset=x;base64,QQ==",
        "data:image/png;base64,!!!!",
        "",
    ],
)
def test_a_url_that_a_medium_would_not_give_back_is_none(url: str) -> None:
    assert medium_of(url) is None


@pytest.mark.parametrize(
    "document",
    [
        MESSAGE,
        OUTPUT,
        {**MESSAGE, "content": [FAR, UPLOADED]},
        {**MESSAGE, "content": "text"},
        {"type": "message", "role": "assistant", "content": []},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c"},
        {"type": "reasoning", "summary": []},
        {"type": "computer_call_output", "output": {"image_url": png_url()}},
    ],
)
def test_named_and_put_back_an_item_is_the_same(document: dict[str, Any]) -> None:
    item = item_from_json(document)
    before = item.SerializeToString(deterministic=True)
    media = [found for url in image_urls(item) if (found := medium_of(url)) is not None]
    held = media_urls(media)
    names = {url: named for named, url in held.items()}
    named = with_images(item, names)
    assert (named is item) == (not media)
    assert b"base64" not in named.SerializeToString() or not media
    assert with_images(named, held) == item
    assert item.SerializeToString(deterministic=True) == before
    written = item_to_dict(named)
    assert with_images_in_json([written], held) == [document]
    assert with_images_in_json([document], names) == [written]


def test_what_stands_in_a_rows_media_may_be_anything() -> None:
    medium = medium_of(png_url())
    assert medium is not None
    row = {"digest": medium.digest, "media_type": "image/png", "data": "QQ=="}
    assert media_urls_in_json([row, {}, 3, {**row, "data": None}]) == {
        media_url(medium.digest): "data:image/png;base64,QQ=="
    }
    assert media_urls_in_json("cats") == media_urls_in_json(None) == {}


def test_items_of_any_shape_are_left_alone() -> None:
    urls = {"gymmesh-media:x": "data:"}
    for items in ("text", None, [1, {"content": 5}, {"content": [3, {"type": "input_image"}]}]):
        assert with_images_in_json(items, urls) is items


def test_the_text_of_an_image_is_shared() -> None:
    held = media_urls([rollout_pb2.Media(digest="x", media_type="image/png", data=png())])
    part = {"type": "input_image", "image_url": media_url("x")}
    (item,) = with_images_in_json([{"role": "user", "content": [part, part]}], held)
    one, other = (part["image_url"] for part in item["content"])
    assert one is other
