"""Images in files beside a task file: an `input_image` whose `image_url` is a path.

The path is relative to the task file's folder and may not lead out of it, by a symbolic link
neither: task files may come from others. Files are read when the task is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from gymmesh_client.tasks.checks import Mistakes
from gymmesh_responses import (
    MOST_IMAGE_BYTES,
    CodecError,
    JsonValue,
    data_url,
    image_type,
    loads,
    with_images_in_json,
)
from gymmesh_runtime.text import os_reason

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PART: Final = b'"input_image"'
_KEYS: Final = ("responses_create_params", "prompt")


class _BadImage(Exception):
    """Why a file is not taken."""


def image_mistakes(items: JsonValue, key: str, folder: Path) -> Mistakes:
    """What is wrong with the images that `items`, an input at this key of a row, name by a path."""
    for place, path in _paths(items):
        try:
            _read(path, folder)
        except _BadImage as refused:
            yield f"{key}{place}", str(refused)


def with_image_files(items: JsonValue, folder: Path) -> JsonValue:
    """An input that was checked, with the images in it that it names by a path."""
    urls = {path: data_url(*_read(path, folder)) for path in {path for _, path in _paths(items)}}
    return with_images_in_json(items, urls)


def images_digest(line: bytes, folder: Path) -> bytes:
    """A digest of the files that a task's line names as images; empty where it names none.

    A file that can't be taken counts as one without bytes: reading the task says what is wrong.
    """
    if _PART not in line:
        return b""
    digest, count = hashlib.sha256(), 0
    for path in _named(line):
        count += 1
        try:
            digest.update(hashlib.sha256(_read(path, folder)[1]).digest())
        except _BadImage:
            digest.update(b"-")
    return digest.digest() if count else b""


def _named(line: bytes) -> Iterator[str]:
    try:
        row = loads(line.strip())
    except CodecError:
        return
    if type(row) is dict:
        for key in _KEYS:
            given = row.get(key)
            for _, path in _paths(given.get("input") if type(given) is dict else given):
                yield path


def _paths(items: JsonValue) -> Iterator[tuple[str, str]]:
    """The paths that stand where images have URLs, each with its place in the input."""
    for number, item in enumerate(items if type(items) is list else ()):
        if type(item) is not dict:
            continue
        key = "output" if item.get("type") == "function_call_output" else "content"
        parts: Any = item.get(key)
        for at, part in enumerate(parts if type(parts) is list else ()):
            if type(part) is dict and part.get("type") == "input_image":
                url = part.get("image_url")
                if type(url) is str and not _URL.match(url):
                    yield f"[{number}].{key}[{at}].image_url", url


def _read(path: str, folder: Path) -> tuple[str, bytes]:
    """An image's media type and bytes. Raises _BadImage."""
    named = f"the image {path[:200]!r}"
    try:
        root = folder.resolve()
        found = (root / path).resolve()
        if not found.is_relative_to(root):
            raise _BadImage(
                f"{named} is outside the task file's folder. Move the image into the folder"
            )
        if not found.is_file():
            raise _BadImage(f"{named} is not a file in the task file's folder. Use a path or a URL")
        with found.open("rb") as file:
            data = file.read(MOST_IMAGE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        why = os_reason(error) if isinstance(error, OSError) else str(error)
        raise _BadImage(f"{named} cannot be read: {why}") from None
    if len(data) > MOST_IMAGE_BYTES:
        raise _BadImage(f"{named} exceeds {MOST_IMAGE_BYTES:,} bytes. Use a smaller image")
    kind = image_type(data)
    if kind is None:
        raise _BadImage(f"{named} is not a PNG, JPEG, GIF or WebP image")
    return kind, data
