"""Content parts: what a message or a tool's answer is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.errors import CodecError
from gymmesh_responses.fields import fill_opaque, put, put_overlay, take, write_each
from gymmesh_responses.jsonio import JsonValue, read_field, store

# Of the class, since a message looks through the names of its fields to find its methods.
_KIND_OF: Final = pb.ContentPart.WhichOneof
UNKNOWN_KIND = "holds a kind that this version of the contract does not know"


# The fields of each kind that have the name of their key; they all hold text.
_TEXTS: dict[str, tuple[str, ...]] = {
    "input_text": ("text",),
    "output_text": ("text",),
    "refusal": ("refusal",),
    "input_image": ("image_url", "file_id", "detail"),
}


def fill_part(part: pb.ContentPart, value: JsonValue) -> None:
    """Read one content part."""
    kind = value.get("type") if type(value) is dict else None
    if kind == "output_text" and _fill_usual_text(part, value):
        return
    if type(kind) is not str or kind not in _TEXTS:
        fill_opaque(part.opaque, value)
        return
    rest = value.copy()
    del rest["type"]
    message = getattr(part, kind)
    take(rest, message, _TEXTS[kind])
    if kind == "output_text":
        if rest.get("annotations") == []:
            message.annotations_empty = True
            del rest["annotations"]
        if rest.get("logprobs") == []:
            message.logprobs_empty = True
            del rest["logprobs"]
    if rest:
        message.overlay_json = store(rest)
    elif len(value) == 1:
        message.SetInParent()  # with no field set, only this says which kind it is


def _fill_usual_text(part: pb.ContentPart, value: dict[str, JsonValue]) -> bool:
    """Reads an output text as models write it: no annotations, no probabilities, nothing else."""
    size = len(value)
    text = value.get("text")
    if type(text) is not str or value.get("annotations") != []:
        return False
    if size != 3 and (size != 4 or value.get("logprobs") != []):
        return False
    message = part.output_text
    message.text = text
    message.annotations_empty = True
    if size == 4:
        message.logprobs_empty = True
    return True


def _write_input_text(part: pb.InputText) -> dict[str, JsonValue]:
    text = part.text
    if text or part.HasField("text"):
        out: dict[str, JsonValue] = {"type": "input_text", "text": text}
    else:
        out = {"type": "input_text"}
    overlay = part.overlay_json
    return put_overlay(out, overlay) if overlay else out


def _write_output_text(part: pb.OutputText) -> dict[str, JsonValue]:
    text = part.text
    if text or part.HasField("text"):
        out: dict[str, JsonValue] = {"type": "output_text", "text": text}
    else:
        out = {"type": "output_text"}
    if part.annotations_empty:
        out["annotations"] = []
    if part.logprobs_empty:
        out["logprobs"] = []
    overlay = part.overlay_json
    return put_overlay(out, overlay) if overlay else out


def _write_refusal(part: pb.Refusal) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {"type": "refusal"}
    put(out, part, ("refusal",))
    return put_overlay(out, part.overlay_json)


def _write_input_image(part: pb.InputImage) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {"type": "input_image"}
    put(out, part, ("image_url", "file_id", "detail"))
    return put_overlay(out, part.overlay_json)


def write_opaque(message: pb.OpaqueItem | pb.OpaquePart | pb.OpaqueTool) -> JsonValue:
    """The JSON that an opaque message holds."""
    return read_field(message.json, "json")


def write_kind(message: Any, writers: dict[str, Callable[[Any], JsonValue]]) -> JsonValue:
    """Write whichever member of the `kind` oneof is set.

    Raises:
        CodecError: none is, or one that a later contract added.
    """
    kind = message.WhichOneof("kind")
    if kind is None:
        raise CodecError(UNKNOWN_KIND)
    return writers[kind](getattr(message, kind))


_WRITERS: dict[str, Callable[[Any], JsonValue]] = {
    "input_text": _write_input_text,
    "output_text": _write_output_text,
    "refusal": _write_refusal,
    "input_image": _write_input_image,
    "opaque": write_opaque,
}


def write_part(part: pb.ContentPart) -> JsonValue:
    """Write one content part."""
    kind = _KIND_OF(part, "kind")
    if kind == "input_text":
        return _write_input_text(part.input_text)
    if kind == "output_text":
        return _write_output_text(part.output_text)
    return write_kind(part, _WRITERS)


def write_parts(parts: pb.ContentParts) -> list[JsonValue]:
    """Write a list of content parts."""
    found = parts.parts
    if len(found) != 1:
        return write_each(write_part, found)
    # The usual case; a loop over a repeated field costs as much as all of this.
    try:
        return [write_part(found[0])]
    except CodecError as error:
        raise error.within(0) from None
