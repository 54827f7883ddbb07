"""Which images are shown: those in the row itself, of types that contain no code. Pure.

A page has each image once, and parts refer to it by number, because a program may send an image
with every call.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Final

from gymmesh_view.rows import Json

_DATA: Final = re.compile(r"data:image/(png|jpeg|jpg|gif|webp);base64,([A-Za-z0-9+/\s]+={0,2})\s*")
_MOST_CHARS: Final = 16 << 20
# Of all images of a page, in characters.
_MOST_IN_ALL: Final = 64 << 20
_BEGINS: Final = {
    "png": (b"\x89PNG\r\n\x1a\n",),
    "jpeg": (b"\xff\xd8\xff",),
    "gif": (b"GIF87a", b"GIF89a"),
    "webp": (b"RIFF",),
}


def shown_image(url: str) -> tuple[str, str]:
    """The URL of an image that a page may load, or the reason why it is not shown. The other of the
    two is empty.

    No image is fetched. SVG, which can contain scripts, is not shown.
    """
    if not url.startswith("data:"):
        return "", f"an image at an address that this page does not fetch: {url[:300]}"
    if len(url) > _MOST_CHARS:
        return "", f"an image of {len(url) >> 20} MiB, which is too large to show"
    found = _DATA.fullmatch(url)
    if found is None:
        kind = url[5:40].partition(";")[0].partition(",")[0]
        return "", f"an image of a type that this page does not show: {kind or 'no type'}"
    kind = "jpeg" if found[1] == "jpg" else found[1]
    encoded = "".join(found[2].split())
    try:
        begin = base64.b64decode(encoded[:64] + "=" * (-len(encoded[:64]) % 4), validate=True)
        if len(encoded) % 4:
            raise binascii.Error("the length is not a multiple of 4")
    except binascii.Error:
        return "", "an image that is not valid Base64"
    if not begin.startswith(_BEGINS[kind]) or (kind == "webp" and begin[8:12] != b"WEBP"):
        return "", f"an image with the type {kind}, but its bytes are not {kind}"
    return f"data:image/{kind};base64,{encoded}", ""


def numbered(items: Iterable[Json]) -> list[str]:
    """The images of items as a page shows them, each once. In the parts, the number of an image
    replaces its URL.

    Images beyond the limit of a page become notes.
    """
    images: dict[str, int] = {}
    chars = 0
    for part in (part for item in items for part in item["parts"] if part["as"] == "image"):
        url = part["text"]
        if url not in images:
            if chars + len(url) > _MOST_IN_ALL:
                why = f"an image that is not shown: the rollout has more than {_MOST_IN_ALL >> 20}"
                part.update({"as": "note", "text": f"{why} MiB of images"})
                continue
            chars += len(url)
            images[url] = len(images)
        part.update({"text": "", "image": images[url]})
    return list(images)
