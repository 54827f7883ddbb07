"""Small real images for tests."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

Json = dict[str, Any]


def png(seed: int = 0, side: int = 8) -> bytes:
    """A PNG of one colour; another one for each seed."""
    colour = bytes((seed & 255, seed >> 8 & 255, 128))
    rows = (b"\0" + colour * side) * side
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def png_url(seed: int = 0) -> str:
    """It as a data URL."""
    return f"data:image/png;base64,{base64.b64encode(png(seed)).decode()}"


def image_part(seed: int = 0) -> Json:
    """It as a part of a message's content or a tool's output."""
    return {"type": "input_image", "image_url": png_url(seed)}
