"""Gemini's schemas (a part of OpenAPI 3.0) as JSON Schema. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gymmesh_agent.gateway.dialects.gemini.keys import snake
from gymmesh_agent.gateway.dialects.reading import UnreadableRequest, an_object, nests_deeper
from gymmesh_agent.gateway.request import MAX_LEVELS, Json

#: Keys of a schema whose values are schemas: one, a list, or an object of them.
_ONE: Final = frozenset(("items", "additionalProperties"))
_LISTS: Final = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_OBJECTS: Final = frozenset(("properties", "$defs", "defs"))
#: Counts, which the API's JSON writes as text.
_COUNTS: Final = frozenset(
    ("maxItems", "minItems", "maxLength", "minLength", "maxProperties", "minProperties")
)
_SPELLED: Final[Mapping[str, str]] = {snake(name): name for name in (*_ONE, *_LISTS, *_COUNTS)}
#: Only orders what the model writes.
_DROPPED: Final = frozenset(("propertyOrdering", "property_ordering"))


def json_schema(value: object, place: str) -> Json:
    """The JSON Schema of a Gemini schema. Raises UnreadableRequest."""
    if nests_deeper(value, MAX_LEVELS):
        raise UnreadableRequest(f"{place} nests deeper than {MAX_LEVELS} levels")
    return _schema(an_object(value, place))


def _schema(given: Json) -> Json:
    made: Json = {}
    for key, value in given.items():
        name = _SPELLED.get(key, key)
        if value is None or name in _DROPPED or name == "nullable":
            continue
        made[name] = _member(name, value)
    if given.get("nullable") is True and isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
    return made


def _member(name: str, value: Any) -> Any:
    if name == "type" and isinstance(value, str):
        return value.lower()
    if name in _COUNTS and isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:18])
    if name in _ONE and isinstance(value, dict):
        return _schema(value)
    if name in _LISTS and isinstance(value, list):
        return [_schema(one) if isinstance(one, dict) else one for one in value]
    if name in _OBJECTS and isinstance(value, dict):
        return {key: _schema(one) if isinstance(one, dict) else one for key, one in value.items()}
    return value
