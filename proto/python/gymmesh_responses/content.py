"""Content parts: what a message or a tool's answer is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.errors import CodecError
from gymmesh_responses.fields import Fit, Init, each, fill, opaque, put, put_overlay, write_each
from gymmesh_responses.jsonio import JsonValue, read_field

UNKNOWN_KIND = "holds a kind that this version of the contract does not know"


def _empty(flag: str) -> Fit:
    def fit(value: JsonValue, init: Init) -> bool:
        if type(value) is not list or value:
            return False
        init[flag] = True
        return True

    return fit


_EXACT: dict[str, dict[str, type]] = {
    "input_text": {"type": str, "text": str},
    "output_text": {"type": str, "text": str},
    "refusal": {"type": str, "refusal": str},
    "input_image": {"type": str, "image_url": str, "file_id": str, "detail": str},
}
_OUTPUT_TEXT_FITS = {
    "annotations": _empty("annotations_empty"),
    "logprobs": _empty("logprobs_empty"),
}
_NO_FITS: dict[str, Fit] = {}


def part_init(part: JsonValue) -> Init:
    """Read one content part."""
    if type(part) is dict:
        kind = part.get("type")
        if type(kind) is str and kind in _EXACT:
            fits = _OUTPUT_TEXT_FITS if kind == "output_text" else _NO_FITS
            init = fill(part, {}, _EXACT[kind], fits)
            del init["type"]
            return {kind: init}
    return opaque(part)


def parts_init(parts: list[JsonValue]) -> Init:
    """Read a list of content parts."""
    return {"parts": each(part_init, parts)}


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
    kind = part.WhichOneof("kind")
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
