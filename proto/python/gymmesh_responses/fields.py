"""Divides a JSON object between a message's typed fields and the message's overlay.

Reading sets the fields that have a key, and puts the other keys into the overlay; the object is
never changed. Writing makes a dict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.errors import CodecError
from gymmesh_responses.jsonio import JsonValue, name_of, read_field, read_object, store

UNKNOWN_KIND: Final = "holds a kind that this version of the contract does not know"
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def take(
    message: Any, source: dict[str, JsonValue], kinds: Mapping[str, type]
) -> dict[str, JsonValue]:
    """Set the fields whose keys hold a value of this very type; return the other keys."""
    rest = source.copy()
    for name, kind in kinds.items():
        if type(rest.get(name)) is kind:
            setattr(message, name, rest.pop(name))
    return rest


def texts(*names: str) -> dict[str, type]:
    """The fields of these names as `take` wants them, all of them text."""
    return dict.fromkeys(names, str)


def take_number(rest: dict[str, JsonValue], message: Any, name: str) -> None:
    """Move a float, or an integer in the range of int64, into the `Number` of that name."""
    value = rest.get(name)
    if type(value) is float:
        getattr(message, name).real = value
    elif is_int64(value):
        getattr(message, name).integer = value
    else:
        return
    del rest[name]


def take_json(rest: dict[str, JsonValue], message: Any, name: str, *kinds: type) -> None:
    """Move a value of one of these types into the `*_json` field of that name, as JSON text."""
    value = rest.get(name)
    if type(value) in kinds:
        try:
            setattr(message, f"{name}_json", store(value))
        except CodecError as error:
            raise error.within(name) from None
        del rest[name]


def fill_each(
    messages: Any, values: list[JsonValue], name: str, fill: Callable[[Any, JsonValue], None]
) -> None:
    """Read the list of that name into a repeated field; an error names the element's index."""
    try:
        for value in values:
            fill(messages.add(), value)
    except CodecError as error:
        raise error.within(len(messages) - 1).within(name) from None


def require_object(document: JsonValue, noun: str) -> dict[str, JsonValue]:
    """The document, which must be an object."""
    if type(document) is not dict:
        raise CodecError(f"{noun} must be a JSON object, not {name_of(document)}")
    return document


def require_list(document: JsonValue, noun: str) -> list[JsonValue]:
    """The document, which must be an array."""
    if type(document) is not list:
        raise CodecError(f"{noun} must be a JSON array, not {name_of(document)}")
    return document


def is_int64(value: JsonValue) -> bool:
    """Whether the value is an integer (a boolean is none) in the range of int64."""
    return type(value) is int and INT64_MIN <= value <= INT64_MAX


def fill_opaque(message: pb.OpaqueItem | pb.OpaquePart | pb.OpaqueTool, value: JsonValue) -> None:
    """Store a value of a kind that the contract doesn't have."""
    kind = value.get("type") if type(value) is dict else None
    message.type = kind if type(kind) is str else ""
    message.json = store(value)


def put(out: dict[str, JsonValue], message: Any, names: Iterable[str]) -> None:
    """Write the optional scalar fields `names` that are set."""
    for name in names:
        value = getattr(message, name)
        # Presence matters for an empty value alone.
        if value or message.HasField(name):
            out[name] = value


def put_overlay(out: dict[str, JsonValue], overlay_json: bytes) -> dict[str, JsonValue]:
    """Add the overlay's keys. They override keys that already exist."""
    if overlay_json:
        out.update(read_object(overlay_json, "overlay_json"))
    return out


def under(key: str, convert: Callable[[Any], JsonValue], value: Any) -> JsonValue:
    """Convert the value of a key; an error names the key."""
    try:
        return convert(value)
    except CodecError as error:
        raise error.within(key) from None


Writers: TypeAlias = Mapping[str, Callable[[Any], JsonValue]]
"""For each member of a `kind` oneof, the function that writes the member."""


def write_kind(message: Any, writers: Writers) -> JsonValue:
    """Write whichever member of the `kind` oneof is set.

    Raises:
        CodecError: no member is set, or a member that a later contract added.
    """
    kind = message.WhichOneof("kind")
    if kind is None:
        raise CodecError(UNKNOWN_KIND)
    return writers[kind](getattr(message, kind))


def write_kinds(messages: Iterable[Any], writers: Writers) -> list[JsonValue]:
    """`write_kind` of every message of a list; an error names its index."""
    values: list[JsonValue] = []
    try:
        for message in messages:
            kind = message.WhichOneof("kind")
            if kind is None:
                raise CodecError(UNKNOWN_KIND)
            values.append(writers[kind](getattr(message, kind)))  # the length tells the index
    except CodecError as error:
        raise error.within(len(values)) from None
    return values


def write_opaque(message: pb.OpaqueItem | pb.OpaquePart | pb.OpaqueTool) -> JsonValue:
    """The JSON in an opaque message."""
    return read_field(message.json, "json")


def write_number(message: pb.Number) -> int | float:
    """The number of a `Number` that has one.

    Raises:
        CodecError: it is NaN or an infinity, which JSON does not have.
    """
    if message.HasField("integer"):
        return message.integer
    if not math.isfinite(message.real):
        raise CodecError(f"{message.real} is not a JSON number")
    return message.real
