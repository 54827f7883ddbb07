"""Images that tools return and turns show."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from gymmesh.responses.v1 import responses_pb2
from gymmesh_responses import MOST_IMAGE_BYTES, data_url, image_type, item_from_json


class Image:
    """A picture for the model: `return Image(png_bytes)`, or `return Image("chart.png", "Sales:")`.

    A PNG, JPEG, GIF or WebP, recognized by its first bytes, of at most 20 MB.

    Args:
        image: its bytes, or the path of its file.
        text: shown to the model before the image; empty: nothing.
        detail: the resolution that OpenAI's endpoints use: `low`, `high` or `auto`.

    Attributes:
        media_type: such as `image/png`.
        parts: the text and the image as a message's content.

    Raises:
        ValueError: the image has another format or is larger.
        OSError: the file can't be read.
    """

    __slots__ = ("media_type", "parts")

    def __init__(
        self,
        image: bytes | bytearray | memoryview | str | PathLike[str],
        text: str = "",
        *,
        detail: Literal["low", "high", "auto"] | None = None,
    ) -> None:
        if isinstance(image, bytes | bytearray | memoryview):
            what, data = "the image", bytes(image)
        else:
            what = str(image)
            with Path(image).open("rb") as file:
                data = file.read(MOST_IMAGE_BYTES + 1)
        if len(data) > MOST_IMAGE_BYTES:
            raise ValueError(
                f"{what} is larger than {MOST_IMAGE_BYTES:,} bytes, the limit for an image"
            )
        media_type = image_type(data)
        if media_type is None:
            begin = f"it begins with {data[:8]!r}" if data else "it is empty"
            raise ValueError(f"{what} is not a PNG, JPEG, GIF or WebP: {begin}")
        part = {"type": "input_image", "image_url": data_url(media_type, data)}
        if detail is not None:
            part["detail"] = detail
        self.media_type = media_type
        self.parts: list[dict[str, Any]] = [{"type": "input_text", "text": text}] if text else []
        self.parts.append(part)

    def __repr__(self) -> str:
        return f"<Image {self.media_type}>"


def parts_of(value: Any) -> responses_pb2.ContentParts | None:
    """The content parts of an image, or of a list of images and texts, that a tool returned.

    None: it has no image. Raises TypeError for a list with an image and another type of value.
    """
    values: Sequence[Any] = value if isinstance(value, list | tuple) else (value,)
    if not any(isinstance(one, Image) for one in values):
        return None
    parts: list[dict[str, Any]] = []
    for one in values:
        if isinstance(one, Image):
            parts += one.parts
        elif isinstance(one, str):
            parts.append({"type": "input_text", "text": one})
        else:
            raise TypeError(
                "a list with an image may have only texts and images, but this list also has a "
                f"value of the type {type(one).__name__}"
            )
    output = {"type": "function_call_output", "call_id": "", "output": parts}
    return item_from_json(output).function_call_output.parts
