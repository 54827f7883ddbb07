"""Types for the values of XML and CSV, which are text all of them.

Invariant: a value that cannot be read as its schema's type stays the text it was, so that the
validation says what is wrong with it. The rules are those of NeMo Gym's structured_outputs.
"""

from __future__ import annotations

import math
from typing import Any


def typed_tree(value: Any, schema: Any) -> Any:
    """A tree of XML with the types of its schema.

    An element that repeats is a list; where the schema wants a list, an object with one key is
    taken for the element that repeats in it. An empty element is empty text, or else null.
    """
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "object" and isinstance(value, dict):
        known = schema.get("properties", {})
        return {key: typed_tree(part, known.get(key)) for key, part in value.items()}
    if kind == "array":
        return [typed_tree(part, schema.get("items", {})) for part in _elements(value)]
    if kind == "string" and value is None:
        return ""
    return _scalar(value, kind) if isinstance(value, str) else value


def _elements(value: Any) -> list[Any]:
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def typed_rows(rows: list[dict[str, Any]], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a table with the types of the schema's columns."""
    items = schema.get("items", schema)
    columns = items.get("properties", {}) if isinstance(items, dict) else {}
    kinds = {
        key: column.get("type", "string")
        for key, column in columns.items()
        if isinstance(column, dict)
    }
    return [
        {key: _cell(value, kinds.get(key, "string")) for key, value in row.items()} for row in rows
    ]


def _cell(value: str | None, kind: Any) -> Any:
    if isinstance(kind, list):
        if not value and "null" in kind:
            return None
        for one in kind:
            typed = value if one == "null" else _cell(value, one)
            if one == "string" or not isinstance(typed, str):
                return typed
        return value
    return _scalar(value, kind) if value else value


def _scalar(text: str, kind: Any) -> Any:
    try:
        if kind == "integer":
            return int(text)
        if kind == "number":
            number = float(text)
            return number if math.isfinite(number) else text
    except ValueError:
        return text
    if kind == "boolean":
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    return text
