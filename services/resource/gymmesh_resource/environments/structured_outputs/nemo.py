"""NeMo Gym's own reading of answers and schemas, right or wrong: for `compat: nemo` alone.

YAML is read by version 1.1, the later of two equal keys counts in JSON, a CSV table without rows
fits whatever its header is, and schemas are made strict without a look into their lists.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

# Levels of YAML.
_DEEPEST: Final = 200
# Keys of a schema whose values are schemas by names of the author's, not by keywords.
_NAMED: Final = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
# Keys whose values are data.
_DATA: Final = {"const", "default", "enum", "example", "examples"}


def strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema, with all properties required and no others allowed."""
    closed: dict[str, Any] = {}
    for key, value in schema.items():
        if not isinstance(value, dict) or key in _DATA:
            closed[key] = value
        elif key in _NAMED:
            closed[key] = {
                name: strict(inner) if isinstance(inner, dict) else inner
                for name, inner in value.items()
            }
        else:
            closed[key] = strict(value)
    if isinstance(schema.get("properties"), dict):
        closed["required"] = list(schema["properties"])
        closed["additionalProperties"] = False
    return closed


def load_yaml(text: str) -> Any:
    """What one document of YAML 1.1 stands for."""
    yaml = import_module("yaml")
    # The one in C, where there is one, reads the same ten times as fast; but it crashes on what
    # is nested deeply, so that is counted first.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise ValueError("nested too deeply")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return yaml.load(text, Loader=loader)


def read_rows(text: str) -> list[dict[str, Any]]:
    """The rows of a table by the names of its header."""
    reader = csv.DictReader(io.StringIO(text))
    rows = list(reader)
    if any(None in row for row in rows):
        raise ValueError("a row has more fields than the header")
    return [dict(row) for row in rows]


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
