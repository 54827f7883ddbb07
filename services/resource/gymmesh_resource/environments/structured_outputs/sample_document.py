"""A document that fits a schema, and its text in a format. Pure."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from gymmesh_resource.environments.structured_outputs.parsing import TextFormat
from gymmesh_resource.sample_arguments import CannotMakeUp, made_up


def document_for(schema_text: str) -> Any:
    """A document with every property that the schema names; None where none was found."""
    try:
        schema = _complete(json.loads(schema_text))
        if not isinstance(schema, dict):
            return None
        # made_up makes objects; the document is what one required property gets.
        whole = {"properties": {"document": schema}, "required": ["document"]}
        if "$defs" in schema:
            whole["$defs"] = schema["$defs"]
        return made_up(whole)["document"]
    except (CannotMakeUp, ValueError, RecursionError):
        return None


def written(document: Any, format: TextFormat) -> str | None:
    """The document as text; None for what this cannot write."""
    match format:
        case "json" | "yaml":  # JSON is YAML
            return json.dumps(document)
        case "csv":
            if not isinstance(document, list) or not document:
                return None
            text = io.StringIO()
            rows = csv.DictWriter(text, list(document[0]), lineterminator="\n")
            rows.writeheader()
            rows.writerows(document)
            return text.getvalue()
        case "xml":
            if not isinstance(document, dict) or len(document) != 1:
                return None
            return "".join(_element(name, value) for name, value in document.items())
        case "toml":
            flat = isinstance(document, dict) and not any(
                isinstance(value, dict | list) for value in document.values()
            )
            lines = (f"{name} = {json.dumps(value)}\n" for name, value in document.items())
            return "".join(lines) if flat else None


def _complete(schema: Any) -> Any:
    """The schema with all properties required, and at least one entry in each list."""
    if isinstance(schema, list):
        return [_complete(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _complete(part) for key, part in schema.items()}
    if isinstance(made.get("properties"), dict):
        made["required"] = list(made["properties"])
    return made


def _element(name: str, value: Any) -> str:
    if isinstance(value, dict):
        inner = "".join(_element(key, part) for key, part in value.items())
    elif isinstance(value, list):
        return "".join(_element(name, part) for part in value)
    else:
        inner = json.dumps(value) if isinstance(value, bool) else str(value)
    return f"<{name}>{inner}</{name}>"
