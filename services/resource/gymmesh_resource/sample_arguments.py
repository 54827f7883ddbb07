"""Makes up arguments for a tool from its JSON Schema: valid, but without meaning."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jsonschema

_DEEPEST = 12
_FORMATS = {
    "date": "2024-05-17",
    "date-time": "2024-05-17T09:30:00Z",
    "time": "09:30:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
}
# What patterns of identifiers, dates, times and numbers mostly take.
_TEXTS = ("text", "a", "A", "1", "12", "2024-05-17", "09:30", "2024-05-17 09:30:00", "1.0", "ABC-1")


class CannotMakeUp(Exception):
    """No arguments were found that the schema allows; the text says for which part."""


def made_up(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that the schema allows, with no more than is required. Raises CannotMakeUp."""
    value = _value({"type": "object", **schema}, schema, 0)
    if not isinstance(value, dict) or not _fits(value, schema, schema):
        raise CannotMakeUp("no arguments were found that fit the schema of its parameters")
    return value


def _value(part: Any, root: Mapping[str, Any], depth: int) -> Any:
    if depth > _DEEPEST:
        raise CannotMakeUp("the schema of its parameters is nested too deeply")
    if not isinstance(part, Mapping):
        return "text"
    if "$ref" in part:
        return _value(_referred(str(part["$ref"]), root), root, depth + 1)
    for key in ("enum", "examples"):
        if isinstance(part.get(key), list) and part[key]:
            return part[key][0]
    for key in ("const", "default"):
        if key in part:
            return part[key]
    for key in ("anyOf", "oneOf"):
        if part.get(key):
            return _first_of(part[key], root, depth)
    if part.get("allOf"):
        merged: dict[str, Any] = {}
        for one in part["allOf"]:
            merged |= _referred(str(one["$ref"]), root) if "$ref" in one else one
        return _value(merged, root, depth + 1)
    kinds = part.get("type", "object" if "properties" in part else "string")
    kind = kinds if isinstance(kinds, str) else next(one for one in kinds if one != "null")
    return _of_kind(kind, part, root, depth)


def _of_kind(kind: str, part: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    if kind == "object":
        properties = part.get("properties", {})
        return {
            name: _value(properties.get(name, {}), root, depth + 1)
            for name in part.get("required", ())
        }
    if kind == "array":
        items = part.get("prefixItems") or [part.get("items", {})] * part.get("minItems", 1)
        return [_value(item, root, depth + 1) for item in items]
    if kind in ("integer", "number"):
        return _number(kind, part)
    return {"boolean": True, "null": None}.get(kind) if kind != "string" else _text(part, root)


def _number(kind: str, part: Mapping[str, Any]) -> int | float:
    step = part.get("multipleOf", 1 if kind == "integer" else None)
    least = part.get("minimum", part.get("exclusiveMinimum", -math.inf))
    most = part.get("maximum", part.get("exclusiveMaximum", math.inf))
    for number in (1, 0, 2, least, least + 1, most, most - 1, (least + most) / 2):
        if not math.isfinite(number):
            continue
        number = math.ceil(number / step) * step if step else number
        if _fits(number, part, {}):
            return int(number) if kind == "integer" else number
    raise CannotMakeUp(f"no number fits {dict(part)}")


def _text(part: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    shortest = int(part.get("minLength", 0))
    longest = int(part.get("maxLength", max(shortest, 40)))
    texts = [_FORMATS[part["format"]]] if part.get("format") in _FORMATS else []
    for text in (*texts, *_TEXTS):
        for fitted in (text, text.ljust(shortest, "x")[:longest]):
            if _fits(fitted, part, root):
                return fitted
    raise CannotMakeUp(f"no text was found that matches the pattern {part.get('pattern')!r}")


def _first_of(parts: list[Any], root: Mapping[str, Any], depth: int) -> Any:
    # What says something before what is left out.
    for part in sorted(parts, key=lambda one: one == {"type": "null"}):
        try:
            return _value(part, root, depth + 1)
        except CannotMakeUp as error:
            problem = error
    raise problem


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for name in reference.removeprefix("#/").split("/"):
        found = found.get(name) if isinstance(found, Mapping) else None
    if found is None:
        raise CannotMakeUp(f"the reference {reference} in the schema points to nothing")
    return found


def _fits(value: Any, part: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    schema = {**part, "$defs": root["$defs"]} if "$defs" in root else part
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))
