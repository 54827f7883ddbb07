"""Content parts: what a message or a tool's answer is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.fields import (
    Writers,
    fill_opaque,
    put,
    put_overlay,
    take,
    texts,
    write_kinds,
    write_opaque,
)
from gymmesh_responses.jsonio import JsonValue, store

# The fields of each kind that have the name of their key; they all hold text.
_TEXTS: Final = {
    "input_text": texts("text"),
    "output_text": texts("text"),
    "refusal": texts("refusal"),
    "input_image": texts("image_url", "file_id", "detail"),
}


def fill_part(part: pb.ContentPart, value: JsonValue) -> None:
    """Read one content part."""
    kind = value.get("type") if type(value) is dict else None
    if type(kind) is not str or kind not in _TEXTS:
        fill_opaque(part.opaque, value)
        return
    message = getattr(part, kind)
    rest = take(message, value, _TEXTS[kind])
    del rest["type"]
    if kind == "output_text":
        _take_empty(rest, message, "annotations")
        _take_empty(rest, message, "logprobs")
    if rest:
        message.overlay_json = store(rest)
    elif len(value) == 1:
        message.SetInParent()  # with no field set, only this says which kind it is


def _take_empty(rest: dict[str, JsonValue], message: pb.OutputText, name: str) -> None:
    """Move an empty list into the field that says so; one with anything in it stays."""
    if rest.get(name) == []:
        setattr(message, f"{name}_empty", True)
        del rest[name]


def _write_output_text(part: pb.OutputText) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {"type": "output_text"}
    put(out, part, ("text",))
    if part.annotations_empty:
        out["annotations"] = []
    if part.logprobs_empty:
        out["logprobs"] = []
    return put_overlay(out, part.overlay_json)


def _writer(kind: str) -> Callable[[Any], JsonValue]:
    """Writes parts of a kind that has nothing but texts."""
    names = tuple(_TEXTS[kind])

    def write(part: Any) -> JsonValue:
        out: dict[str, JsonValue] = {"type": kind}
        put(out, part, names)
        return put_overlay(out, part.overlay_json)

    return write


_WRITERS: Final[Writers] = {
    "input_text": _writer("input_text"),
    "output_text": _write_output_text,
    "refusal": _writer("refusal"),
    "input_image": _writer("input_image"),
    "opaque": write_opaque,
}


def write_parts(parts: pb.ContentParts) -> list[JsonValue]:
    """Write a list of content parts."""
    return write_kinds(parts.parts, _WRITERS)
