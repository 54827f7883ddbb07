"""The rule of gymmesh/json/v1/json.proto, read from the descriptors: slow, and for tests alone."""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from typing import Any

from google.protobuf.message import Message

import gymmesh_responses as codec
from gymmesh.json.v1 import json_pb2

RESPONSES = "gymmesh.responses.v1"
CODED: dict[str, Any] = {
    "Item": codec.item_to_dict,
    "Usage": codec.usage_to_dict,
    "IncompleteDetails": codec.incomplete_details_to_dict,
    "ResponseError": codec.response_error_to_dict,
}


def written(message: Message) -> Any:
    """A message as the rule has it in JSON, parsed."""
    kind: Any = message.DESCRIPTOR
    if kind.file.package == RESPONSES:
        return CODED[kind.name](message)
    made: dict[str, Any] = {}
    overlay: dict[str, Any] = {}
    for field in sorted(kind.fields, key=lambda one: one.number):
        options = field.GetOptions().Extensions[json_pb2.field]
        assert field.containing_oneof is None or len(field.containing_oneof.fields) == 1
        if field.name == "overlay_json":
            raw = getattr(message, field.name)
            overlay = codec.loads(raw) if raw else {}
            continue
        key = key_of(field)
        value = getattr(message, field.name)
        if field.has_presence:
            there = message.HasField(field.name)
            found = one_value(field, value) if there else None
        else:
            there = bool(value)
            found = list_or_value(field, value)
        if there or options.always:
            made[options.within or key] = {key: found} if options.within else found
    return made | overlay


def key_of(field: Any) -> str:
    """The key of a field."""
    options = field.GetOptions().Extensions[json_pb2.field]
    if options.key:
        return str(options.key)
    name = str(field.name)
    return name.removesuffix("_json") if field.type == field.TYPE_BYTES else name


def list_or_value(field: Any, value: Any) -> Any:
    """The JSON of a field without presence."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {key: value[key] for key in sorted(value)}
    if field.is_repeated:
        return [one_value(field, one) for one in value]
    return one_value(field, value)


def one_value(field: Any, value: Any) -> Any:
    """The JSON of one value."""
    if field.type == field.TYPE_MESSAGE:
        return written(value)
    if field.type == field.TYPE_ENUM:
        return enum_name(field.enum_type, value)
    if field.type == field.TYPE_DOUBLE and not math.isfinite(value):
        raise ValueError(f"{field.name} is not finite")
    return bytes_value(field, value) if field.type == field.TYPE_BYTES else value


def enum_name(enum: Any, number: int) -> str:
    """A value's name without the enum's prefix."""
    prefix = ""
    for place, letter in enumerate(enum.name):
        prefix += f"_{letter}" if letter.isupper() and place else letter
    known = enum.values_by_number.get(number)
    return str(number) if known is None else known.name.removeprefix(f"{prefix.upper()}_")


def bytes_value(field: Any, value: bytes) -> Any:
    """What bytes are."""
    if field.name.endswith("_json"):
        return codec.loads(value) if value else {}
    form = field.GetOptions().Extensions[json_pb2.field].bytes
    if form == json_pb2.BYTES_FORM_CUT_TEXT:
        return value.decode("utf-8", "replace")
    if form == json_pb2.BYTES_FORM_INT32:
        return list(struct.unpack(f"<{len(value) // 4}i", value))
    if form == json_pb2.BYTES_FORM_FLOAT32:
        numbers = struct.unpack(f"<{len(value) // 4}f", value)
        return [one if math.isfinite(one) else None for one in numbers]
    if form == json_pb2.BYTES_FORM_HEX:
        return value.hex()
    if form == json_pb2.BYTES_FORM_BASE64:
        return b64encode(value).decode()
    return codec.bytes_to_text(value)
