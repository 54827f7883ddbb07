"""How a JSON object is shared between a message's typed fields and its overlay.

Reading makes keyword arguments for the message's constructor, nested ones as
dicts: one constructor call at the top then builds the whole tree in C, which is
faster than a constructor per message. Writing makes a dict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.errors import CodecError
from gymmesh_responses.jsonio import JsonValue, name_of, read_object, store

Init: TypeAlias = dict[str, Any]
"""Keyword arguments of a message's constructor."""

Fit: TypeAlias = Callable[[JsonValue, Init], bool]
"""Puts a value into the field that it fits and says True, or says False."""

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def fill(
    source: dict[str, JsonValue], init: Init, exact: Mapping[str, type], fits: Mapping[str, Fit]
) -> Init:
    """Share the keys of `source` between typed fields and overlay, in `init`.

    Args:
        exact: keys whose field has the key's name and takes this very type.
        fits: keys that need a decision of their own.
    """
    rest: dict[str, JsonValue] = {}
    key = ""
    try:
        for key, value in source.items():
            if exact.get(key) is type(value):
                init[key] = value
                continue
            fit = fits.get(key)
            if fit is None or not fit(value, init):
                rest[key] = value
    except CodecError as error:
        raise error.within(key) from None
    if rest:
        init["overlay_json"] = store(rest)
    return init


def each(read: Callable[[JsonValue], Init], values: Iterable[JsonValue]) -> list[Init]:
    """Read every element of a list; an error names its index."""
    inits: list[Init] = []
    try:
        for value in values:
            inits.append(read(value))  # the length tells the index
    except CodecError as error:
        raise error.within(len(inits)) from None
    return inits


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


def int64(field: str) -> Fit:
    """Fits integers in the range of int64."""

    def fit(value: JsonValue, init: Init) -> bool:
        if not is_int64(value):
            return False
        init[field] = value
        return True

    return fit


def number(field: str) -> Fit:
    """Fits floats, and integers in the range of int64."""

    def fit(value: JsonValue, init: Init) -> bool:
        if type(value) is float:
            init[field] = {"real": value}
        elif is_int64(value):
            init[field] = {"integer": value}
        else:
            return False
        return True

    return fit


def raw_json(field: str, *types: type) -> Fit:
    """Fits values of the given types, kept as JSON text."""

    def fit(value: JsonValue, init: Init) -> bool:
        if type(value) not in types:
            return False
        init[field] = store(value)
        return True

    return fit


def opaque(value: JsonValue) -> Init:
    """The init of an OpaqueItem, OpaquePart or OpaqueTool."""
    kind = value.get("type") if type(value) is dict else None
    return {"opaque": {"type": kind if type(kind) is str else "", "json": store(value)}}


def put(out: dict[str, JsonValue], message: Any, names: tuple[str, ...]) -> None:
    """Write the optional scalar fields `names` that are set."""
    for name in names:
        value = getattr(message, name)
        # Presence costs more to ask for than the value, and most values are not empty.
        if value or message.HasField(name):
            out[name] = value


def put_overlay(out: dict[str, JsonValue], overlay_json: bytes) -> dict[str, JsonValue]:
    """Add the overlay's keys, which win over those there already."""
    if overlay_json:
        out.update(read_object(overlay_json, "overlay_json"))
    return out


def under(key: str, convert: Callable[[Any], JsonValue], value: Any) -> JsonValue:
    """Convert the value of a key; an error names the key."""
    try:
        return convert(value)
    except CodecError as error:
        raise error.within(key) from None


def write_each(write_one: Callable[[Any], JsonValue], messages: Iterable[Any]) -> list[JsonValue]:
    """Write every message of a list; an error names its index."""
    values: list[JsonValue] = []
    try:
        for message in messages:
            values.append(write_one(message))  # the length tells the index
    except CodecError as error:
        raise error.within(len(values)) from None
    return values


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
