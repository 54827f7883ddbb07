"""JSON value equality as docs/reference/codec.md defines it, written apart from the codec."""

from __future__ import annotations

import json
import struct
from typing import Any


def canonical(value: Any) -> Any:
    """A form in which two JSON values are the same Python value exactly when they are equal."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return ("integer", value)
    if isinstance(value, float):
        return ("real", struct.pack("<d", value))
    if isinstance(value, str):
        return ("text", value.encode("utf-16-le", "surrogatepass"))
    if isinstance(value, list):
        return [canonical(element) for element in value]
    return {canonical(key): canonical(member) for key, member in value.items()}


def same_json(one: Any, other: Any) -> bool:
    """Whether two documents are equal; bytes are parsed with the standard library first."""
    one = json.loads(one) if isinstance(one, bytes) else one
    other = json.loads(other) if isinstance(other, bytes) else other
    return bool(canonical(one) == canonical(other))
