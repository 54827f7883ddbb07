"""Content parts: text, images, files and audio in a message or a tool's output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gymmesh_model.errors import unsupported
from gymmesh_runtime.errors import field_invalid

Json = dict[str, Any]

_TEXT: Final = ("input_text", "output_text", "text", "summary_text")
_TEXT_KEYS: Final = frozenset(("type", "text", "annotations", "logprobs"))


def check_keys(item: Mapping[str, Any], known: frozenset[str] | set[str], place: str) -> None:
    """Refuses a key that the conversion would lose. A key with the value null may be lost."""
    for key, value in item.items():
        if key not in known and value is not None:
            raise unsupported(f"{place}.{key}", "Chat Completions has no field for this parameter")


def content_of(value: object, place: str, key: str = "content") -> str | list[Json]:
    """The content of a message, or the output of a tool, in Chat form: text stays text, parts
    become chat parts.

    A single part of plain text becomes text, which every endpoint accepts.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise field_invalid(f"params.{place}.{key}", "must be text or a list of parts")
    parts = [_part(part, f"{place}.{key}[{index}]") for index, part in enumerate(value)]
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts


def text_content(value: object, place: str) -> tuple[str | list[Json] | None, str | None]:
    """The text and the refusal of an assistant's message; each can be None.

    Annotations and log probabilities are not shown to the model.
    """
    if value is None or isinstance(value, str):
        return value, None
    if not isinstance(value, list):
        raise field_invalid(f"params.{place}.content", "must be text or a list of parts")
    refusals: list[str] = []
    rest: list[object] = []
    for index, part in enumerate(value):
        if isinstance(part, Mapping) and part.get("type") == "refusal":
            check_keys(part, {"type", "refusal"}, f"{place}.content[{index}]")
            refusals.append(text_of_part(part, "refusal", f"{place}.content[{index}]"))
        else:
            rest.append(part)
    content = content_of(rest, place) if rest else None
    return content, "\n".join(refusals) if refusals else None


def _part(part: object, place: str) -> Json:
    if not isinstance(part, Mapping):
        raise field_invalid(f"params.{place}", "must be an object")
    kind = part.get("type")
    if kind in _TEXT:
        check_keys(part, _TEXT_KEYS, place)
        return {"type": "text", "text": text_of_part(part, "text", place)}
    if kind == "input_image":
        check_keys(part, {"type", "image_url", "detail"}, place)
        image = {"url": text_of_part(part, "image_url", place)}
        if part.get("detail") is not None:
            image["detail"] = part["detail"]
        return {"type": "image_url", "image_url": image}
    if kind == "input_file":
        keys = ("file_data", "file_id", "filename")
        check_keys(part, {"type", *keys}, place)
        given = {key: part[key] for key in keys if part.get(key) is not None}
        return {"type": "file", "file": given}
    if kind == "input_audio":
        check_keys(part, {"type", "input_audio"}, place)
        return {"type": "input_audio", "input_audio": part.get("input_audio")}
    raise unsupported(f"{place}.type", f"Chat Completions has no content part of type '{kind}'")


def text_of_part(part: Mapping[str, Any], key: str, place: str) -> str:
    """The text under a key of a part. Raises MeshError FIELD_INVALID if there is no text."""
    value = part.get(key)
    if not isinstance(value, str):
        raise field_invalid(f"params.{place}.{key}", "must be text")
    return value
