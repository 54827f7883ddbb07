"""Types for the values of XML and CSV, which are text all of them. Pure.

Invariant: a value that cannot be read as its schema's type stays the text it was, so that the
validation says what is wrong with it. Numbers are written in ASCII digits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

from gymmesh_resource.environments.structured_outputs.references import referred

# Schemas that are looked through for the types of one value.
_MOST: Final = 100
_IN_PLACE: Final = ("allOf", "anyOf", "oneOf")
_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,4000}\s*")
_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]{1,4000}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?\s*")
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}


def typed_tree(value: Any, schema: Any, root: dict[str, Any]) -> Any:
    """A tree of XML with the types of its schema.

    An element that repeats is a list; where the schema wants a list, an object with one key is
    taken for the element that repeats in it, unless the key is a property of the list's objects.
    An empty element is empty text where text is wanted, or else null.
    """
    schemas = list(_in_place(schema, root))
    kinds = _kinds(schemas)
    if "array" in kinds and not ("object" in kinds and isinstance(value, dict)):
        return [
            typed_tree(part, {"allOf": _inner(schemas, "items")}, root)
            for part in _elements(value, schemas, root)
        ]
    if isinstance(value, dict):
        return {
            key: typed_tree(part, {"allOf": _property(schemas, key)}, root)
            for key, part in value.items()
        }
    if value is None and "string" in kinds:
        return ""
    return _scalar(value, kinds) if isinstance(value, str) else value


def typed_rows(rows: list[dict[str, str]], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a table with the types of the schema's columns. An empty cell is null where a column
    may be, or else empty text.
    """
    items = list(_in_place({"allOf": _inner(list(_in_place(schema, schema)), "items")}, schema))
    kinds: dict[str, list[str]] = {}
    typed: list[dict[str, Any]] = []
    for row in rows:
        for key in row:
            if key not in kinds:
                kinds[key] = _kinds(list(_in_place({"allOf": _property(items, key)}, schema)))
        typed.append({key: _cell(value, kinds[key]) for key, value in row.items()})
    return typed


def columns(schema: dict[str, Any]) -> set[str]:
    """The columns that a table's schema names."""
    items = _in_place({"allOf": _inner(list(_in_place(schema, schema)), "items")}, schema)
    return {
        name
        for one in items
        if isinstance(one.get("properties"), dict)
        for name in one["properties"]
    }


def _cell(value: str, kinds: list[str]) -> Any:
    if not value:
        return None if "null" in kinds and "string" not in kinds[:1] else value
    return _scalar(value, kinds)


def _in_place(schema: Any, root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema and those that are applied to the same value with it."""
    waiting = [schema]
    for _ in range(_MOST):
        if not waiting:
            return
        one = waiting.pop(0)
        if not isinstance(one, dict):
            continue
        yield one
        waiting += referred(one, root)
        for key in _IN_PLACE:
            waiting += one[key] if isinstance(one.get(key), list) else ()


def _kinds(schemas: list[dict[str, Any]]) -> list[str]:
    """The types that a value may have, in the schemas' order; those of listed values count too."""
    kinds: list[str] = []
    for schema in schemas:
        kind = schema.get("type")
        kinds += [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else ()
        listed = [schema["const"]] if "const" in schema else schema.get("enum")
        if kind is None and isinstance(listed, list):
            kinds += map(_kind_of, listed)
        if kind is None and isinstance(schema.get("properties"), dict):
            kinds.append("object")
    return kinds


def _kind_of(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case None:
            return "null"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _inner(schemas: list[dict[str, Any]], key: str) -> list[Any]:
    return [schema[key] for schema in schemas if isinstance(schema.get(key), dict)]


def _property(schemas: list[dict[str, Any]], name: str) -> list[Any]:
    """The schemas of a property, by the schemas of the object."""
    known = _inner(schemas, "properties")
    return [properties[name] for properties in known if name in properties]


def _elements(value: Any, schemas: list[dict[str, Any]], root: dict[str, Any]) -> list[Any]:
    if isinstance(value, dict) and len(value) == 1:
        items = list(_in_place({"allOf": _inner(schemas, "items")}, root))
        (name,) = value
        if not _property(items, name):
            value = value[name]
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def _scalar(text: str, kinds: list[str]) -> Any:
    """The value that a text is by the first of the types that can read it."""
    for kind in kinds:
        if kind == "string":
            return text
        if kind == "integer" and _INTEGER.fullmatch(text):
            return int(text)
        if kind == "number" and _NUMBER.fullmatch(text):
            number = float(text)
            return number if math.isfinite(number) else text
        if kind == "boolean" and text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
    return text
