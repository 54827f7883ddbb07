"""A body or an event as a JSON object."""

from __future__ import annotations

from typing import Any

from gymmesh_model.errors import answer_invalid
from gymmesh_responses import CodecError, loads


def read_object(name: str, raw: bytes) -> dict[str, Any]:
    """A body or an event, parsed. Raises MeshError MODEL_ANSWER_INVALID: it is no object."""
    try:
        found = loads(raw)
    except CodecError:
        raise answer_invalid(name, "body is not JSON") from None
    if not isinstance(found, dict):
        raise answer_invalid(name, "body is not a JSON object")
    return found
