"""From the arguments that a model wrote to the values that a tool takes.

Invariant: the model's mistakes become a `BadArguments` whose text says what to correct; they
are never an exception of another kind, and never reach the tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gymmesh_responses import CodecError, loads

# More than this of a schema is no help to a model that is being corrected.
_MAX_PARAMETERS = 12


class BadArguments(Exception):
    """The arguments are not JSON or do not fit; the text is for the model."""


def read_arguments(
    raw: bytes, kind: type[msgspec.Struct], schema: Mapping[str, Any], tool: str
) -> dict[str, Any]:
    """The arguments by parameter name, converted to their types, defaults filled in.

    Nothing at all counts as `{}`, as some models write it for a tool without arguments. As in
    JSON Schema, 2.0 is an integer. Raises `BadArguments`.
    """
    value = read_object(raw, schema, tool)
    try:
        try:
            converted = msgspec.convert(value, kind)
        except msgspec.ValidationError:
            converted = msgspec.convert(_whole_numbers(value), kind)
    except (
        msgspec.ValidationError,
        OverflowError,
        RecursionError,
        UnicodeEncodeError,  # an unpaired surrogate, where the type takes no text
    ) as error:
        # msgspec writes a path as `$.items[1]`.
        problem = str(error).replace(" - at `$.", " in `").replace(" - at `$[", " in `[")
        raise BadArguments(
            f"The arguments of {tool} do not fit: {problem}. {describe_parameters(schema)}"
        ) from None
    return msgspec.structs.asdict(converted)


def read_object(raw: bytes, schema: Mapping[str, Any], tool: str) -> dict[str, Any]:
    """The arguments as they are, of a tool whose types are not checked. Raises `BadArguments`."""
    try:
        value = loads(raw) if raw.strip() else {}
    except CodecError as error:
        raise BadArguments(
            f"The arguments of {tool} are not valid JSON: {error}. {describe_parameters(schema)}"
        ) from None
    if not isinstance(value, dict):
        raise BadArguments(
            f"The arguments of {tool} must be one JSON object. {describe_parameters(schema)}"
        )
    return value


def describe_parameters(schema: Mapping[str, Any]) -> str:
    """One sentence on what a tool takes, such as `Send {"x": integer, "y": string (optional)}.`"""
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = schema.get("required", ())
    shown = [
        f'"{name}": {_type_name(part)}{"" if name in required else " (optional)"}'
        for name, part in list(properties.items())[:_MAX_PARAMETERS]
    ]
    if len(properties) > _MAX_PARAMETERS:
        shown.append("…")
    return f"Send a JSON object: {{{', '.join(shown)}}}."


def _whole_numbers(value: Any) -> Any:
    """A copy in which 2.0 is 2: JSON Schema counts both as integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole_numbers(part) for key, part in value.items()}
    return [_whole_numbers(part) for part in value] if isinstance(value, list) else value


def _type_name(part: Any) -> str:
    if not isinstance(part, dict):
        return "any value"
    if "enum" in part:
        return "one of " + ", ".join(
            msgspec.json.encode(choice).decode() for choice in part["enum"]
        )
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(map(_type_name, part["anyOf"])))
    if part.get("type") == "array" and isinstance(part.get("items"), dict) and part["items"]:
        return f"array of {_type_name(part['items'])}"
    if "pattern" in part:
        return f"string matching {part['pattern']}"
    return str(part.get("type", "object" if "$ref" in part else "any value"))
