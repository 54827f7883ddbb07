"""Converts the arguments that a model wrote to the values that a tool accepts.

Invariant: the model's mistakes become a `BadArguments` whose text says what to correct; they
are never an exception of another kind, and never reach the tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gymmesh_resource.tools.other_types import value_of_other
from gymmesh_responses import CodecError, loads

# More than this of a schema is no help to a model that is being corrected.
_MAX_PARAMETERS = 12
_EXAMPLES = {
    "date-time": "date-time, such as 2030-01-31T09:30:00",
    "date": "date, such as 2030-01-31",
    "time": "time, such as 09:30:00",
}


class BadArguments(Exception):
    """The arguments are not JSON or do not fit; the text is for the model."""


def read_arguments(
    raw: bytes, kind: type[msgspec.Struct], schema: Mapping[str, Any], tool: str
) -> dict[str, Any]:
    """The arguments by parameter name, converted to their types, defaults filled in.

    Empty arguments are read as `{}`, because some models send nothing for a tool without
    arguments. As in JSON Schema, 2.0 is an integer. Raises `BadArguments`.
    """
    value = read_object(raw, schema, tool)
    try:
        try:
            converted = _convert(value, kind)
        except msgspec.ValidationError:
            converted = _convert(_whole_numbers(value), kind)
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
    if _has_objects(schema) and (problem := _unknown_key(value, schema)):
        raise BadArguments(
            f"The arguments of {tool} do not fit: {problem}. {describe_parameters(schema)}"
        )
    return msgspec.structs.asdict(converted)


def _convert(value: Any, kind: type[msgspec.Struct]) -> msgspec.Struct:
    # JSON has only text for keys: `str_keys` makes numbers of them where the type has numbers.
    return msgspec.convert(value, kind, str_keys=True, dec_hook=value_of_other)


def _has_objects(schema: Any) -> bool:
    """Whether there are objects with known keys within a schema."""
    if isinstance(schema, list):
        return any(map(_has_objects, schema))
    if not isinstance(schema, dict):
        return False
    inner = (*schema.get("properties", {}).values(), schema.get("items"), schema.get("anyOf"))
    return "$defs" in schema or any(
        (isinstance(part, dict) and "properties" in part) or _has_objects(part) for part in inner
    )


def _unknown_key(value: Any, schema: Mapping[str, Any]) -> str:
    """What is wrong with a key of an inner object that its schema does not name; else empty.

    msgspec checks the outermost object, and leaves out what inner ones do not know.
    """
    # Slow to import, and most tools have plain parameters.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(schema).iter_errors(value))
    if error is None or error.validator != "additionalProperties":
        return ""
    place = "".join(
        f"[{one}]" if isinstance(one, int) else f".{one}" for one in error.absolute_path
    )
    known = ", ".join(error.schema.get("properties", {}))
    return f"unknown key in `{place.lstrip('.')}`; the known keys are: {known}"


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
    """One sentence on the arguments of a tool, as `Send {"x": integer, "y": string (optional)}`."""
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
    if "format" in part:
        return f"string ({_EXAMPLES.get(part['format'], part['format'])})"
    if "pattern" in part:
        return f"string matching {part['pattern']}"
    return str(part.get("type", "object" if "$ref" in part else "any value"))
