"""Images in conversations: in a URL that holds one, or named by the digest of their bytes. Pure.

Items hold images as URLs. A data URL holds an image's bytes. A media URL, `gymmesh-media:` and a
digest, names bytes that a rollout keeps once, as a `Media`. Images are looked for where the API has
them: in the content of messages and in the outputs of tools.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_responses.jsonio import JsonValue

MOST_IMAGE_BYTES: Final = 20_000_000
"""The most bytes of an image from a tool or a task file."""
#: The kinds of images that models read and pages show, by their media types; the first bytes.
_BEGINS: Final[dict[str, tuple[bytes, ...]]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
_WEBP: Final = slice(8, 12)
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)
_MEDIA: Final = "gymmesh-media:"
_MEDIA_KEYS: Final = ("digest", "media_type", "data")
_IMAGE: Final = "input_image"


def image_type(data: bytes) -> str | None:
    """The media type of an image, by its first bytes; None: not a PNG, JPEG, GIF or WebP."""
    for kind, begins in _BEGINS.items():
        if data.startswith(begins):
            return None if kind == "image/webp" and data[_WEBP] != b"WEBP" else kind
    return None


def data_url(media_type: str, data: bytes) -> str:
    """The data URL that holds these bytes."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def data_of_url(url: str) -> tuple[str, str] | None:
    """The media type of a data URL in base64, and its data as written; None: another URL."""
    found = _DATA_URL.fullmatch(url)
    return None if found is None else (found[1], found[2])


def medium_of(url: str) -> rollout_pb2.Media | None:
    """The medium that a data URL contains. None if it contains no medium, or if the medium's bytes
    and type would produce a different URL: base64 can be written in several ways.
    """
    found = data_of_url(url)
    if found is None:
        return None
    media_type, written = found
    try:
        data = binascii.a2b_base64(written, strict_mode=True)
    except (binascii.Error, ValueError):
        return None
    if data_url(media_type, data) != url:
        return None
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return rollout_pb2.Media(digest=digest, media_type=media_type, data=data)


def media_url(digest: str) -> str:
    """The URL that names a medium."""
    return f"{_MEDIA}{digest}"


def media_urls(media: Iterable[rollout_pb2.Media]) -> dict[str, str]:
    """The data URLs of media, by the media URLs that name these media."""
    return {media_url(one.digest): data_url(one.media_type, one.data) for one in media}


def media_urls_in_json(media: Any) -> dict[str, str]:
    """Like `media_urls`, for the parsed `media` of a row; empty for any other value."""
    found: dict[str, str] = {}
    for one in media if type(media) is list else ():
        if type(one) is not dict:
            continue
        digest, media_type, data = (one.get(key) for key in _MEDIA_KEYS)
        if isinstance(digest, str) and isinstance(media_type, str) and isinstance(data, str):
            found[media_url(digest)] = f"data:{media_type};base64,{data}"
    return found


def image_urls(item: pb.Item) -> Iterator[str]:
    """The URLs of an item's images."""
    parts = _parts_of(item)
    if parts is not None:
        for part in parts.parts:
            if part.WhichOneof("kind") == _IMAGE:
                yield part.input_image.image_url


def with_images(item: pb.Item, urls: Mapping[str, str]) -> pb.Item:
    """A copy of the item in which image URLs are replaced: `urls` maps old URLs to new URLs. The
    item itself if it has none of the old URLs. The argument is not changed.
    """
    if not any(url in urls for url in image_urls(item)):
        return item
    changed = pb.Item()
    changed.CopyFrom(item)
    parts = _parts_of(changed)
    for part in parts.parts if parts is not None else ():
        if part.WhichOneof("kind") == _IMAGE:
            image = part.input_image
            image.image_url = urls.get(image.image_url, image.image_url)
    return changed


def with_images_in_json(items: Any, urls: Mapping[str, str]) -> Any:
    """Like `with_images`, for a list of items in parsed JSON. Others are returned unchanged."""
    if not urls or type(items) is not list:
        return items
    changed = [_with_images_in_item(item, urls) for item in items]
    return items if all(map(lambda one, other: one is other, changed, items)) else changed


def _with_images_in_item(item: JsonValue, urls: Mapping[str, str]) -> JsonValue:
    if type(item) is not dict:
        return item
    key = "output" if item.get("type") == "function_call_output" else "content"
    parts = item.get(key)
    if type(parts) is not list or not any(_image_url(part) in urls for part in parts):
        return item
    changed = [
        {**part, "image_url": urls[url]} if (url := _image_url(part)) in urls else part
        for part in parts
    ]
    return {**item, key: changed}


def _image_url(part: JsonValue) -> str:
    """The URL of a part that is an image; empty for another part."""
    if type(part) is not dict or part.get("type") != _IMAGE:
        return ""
    url = part.get("image_url")
    return url if type(url) is str else ""


def _parts_of(item: pb.Item) -> pb.ContentParts | None:
    """The parts of a message's content or of a tool's output; None: it has none."""
    kind = item.WhichOneof("kind")
    if kind == "message":
        return item.message.parts if item.message.HasField("parts") else None
    if kind == "function_call_output":
        output = item.function_call_output
        return output.parts if output.HasField("parts") else None
    return None
