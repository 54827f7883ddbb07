"""Whether a model can be offered a tool with the schema that a remote server lists. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any


def schema_problem(schema: Mapping[str, Any]) -> str:
    """Why a model's host would refuse a tool's schema; empty: it would accept the schema."""
    return _problem(json.dumps(schema, sort_keys=True))


@lru_cache(maxsize=1024)
def _problem(written: str) -> str:
    # Slow to import and to check: sessions list the same tools again and again.
    from jsonschema import Draft202012Validator, SchemaError

    schema = json.loads(written)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        place = ".".join(map(str, error.absolute_path))
        return f"{place}: {error.message}"[:200] if place else error.message[:200]
    lost = (ref for ref in _references(schema) if not _leads(ref, schema))
    return next((f"{ref} does not exist in the schema" for ref in lost), "")


def _references(node: Any) -> list[str]:
    if isinstance(node, list):
        return [one for part in node for one in _references(part)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
    return own + [one for part in node.values() for one in _references(part)]


def _leads(reference: str, schema: Any) -> bool:
    """Whether a reference within the schema leads somewhere; others are not looked at."""
    if not reference.startswith("#/"):
        return True
    node = schema
    for step in reference[2:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            return False
    return True
