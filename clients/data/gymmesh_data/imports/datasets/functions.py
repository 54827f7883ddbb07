"""Functions and calls of xLAM, and what all function calling data sets share. Pure; each raises
RowRefused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from gymmesh_data.imports.items import RowRefused
from gymmesh_data.rollout import Json
from gymmesh_responses import CodecError, loads

_REFUSED: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST: Final = 64
_TYPES: Final = {
    "str": "string", "string": "string", "char": "string",
    "int": "integer", "integer": "integer", "long": "integer",
    "float": "number", "number": "number", "double": "number",
    "bool": "boolean", "boolean": "boolean",
    "list": "array", "array": "array", "tuple": "array", "set": "array", "sequence": "array",
    "dict": "object", "object": "object", "dictionary": "object", "mapping": "object",
}  # fmt: skip
_GENERIC: Final = re.compile(r"(\w+)\[(.*)\]", re.DOTALL)


def tool_name(name: Any) -> str:
    """A function's name in the letters that model hosts take."""
    if not isinstance(name, str) or not name:
        raise RowRefused("has a function without a name")
    if len(name) > _LONGEST:
        raise RowRefused(f"has a function name longer than {_LONGEST} characters: {name[:80]!r}")
    return _REFUSED.sub("_", name)


def tool_of(name: Any, description: Any, parameters: Json) -> Json:
    """A tool in the form of the Responses API."""
    told = description if isinstance(description, str) else ""
    return {
        "type": "function",
        "name": tool_name(name),
        "description": told,
        "parameters": parameters,
    }


def distinct(tools: Sequence[Json]) -> list[Json]:
    """Tools, each once; a name of two different ones is refused."""
    found = dict[str, Json]()
    for tool in tools:
        if found.setdefault(tool["name"], tool) != tool:
            raise RowRefused(f"has two functions named {tool['name']}")
    if not found:
        raise RowRefused("has no functions")
    return list(found.values())


def called_tool(name: Any, arguments: Any, tools: Sequence[Json]) -> str:
    """The name of the tool that a call is of; RowRefused where no model could make the call."""
    wanted = tool_name(name)
    tool = next((one for one in tools if one["name"] == wanted), None)
    if tool is None:
        raise RowRefused(f"calls {name!r}, which is not one of the row's functions")
    if not isinstance(arguments, dict):
        raise RowRefused(f"calls {name!r} with arguments that are not an object")
    properties = tool["parameters"].get("properties", {})
    if unknown := sorted(set(arguments) - set(properties)):
        raise RowRefused(
            f"calls {name!r} with {unknown[0]!r}, but the function has no such parameter"
        )
    return wanted


def xlam_tools(text: str) -> list[Json]:
    """The functions of xLAM's column `tools`."""
    tools = []
    for one in _json_objects(text):
        given = one.get("parameters")
        parameters = given if isinstance(given, dict) else {}
        if not (
            parameters.get("type") == "object" and isinstance(parameters.get("properties"), dict)
        ):
            parameters = _schema(parameters)
        tools.append(tool_of(one.get("name"), one.get("description"), parameters))
    return distinct(tools)


def xlam_calls(tools: str, answers: str) -> list[Json]:
    """The calls of xLAM's column `answers`, of the functions in `tools`."""
    known, calls = xlam_tools(tools), []
    for one in _json_objects(answers):
        arguments = one.get("arguments", {})
        name = called_tool(one.get("name"), arguments, known)
        calls.append({"name": name, "arguments": arguments})
    if not calls:
        raise RowRefused("has no calls")
    return calls


def _json_objects(text: str) -> list[Json]:
    try:
        found = loads(text)
    except CodecError as error:
        raise RowRefused(f"is not JSON: {error}") from None
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise RowRefused("must be JSON text: a list of objects")
    return found


def _schema(parameters: Json) -> Json:
    """The JSON Schema of parameters that are described by Python's types."""
    properties, required = dict[str, Json](), []
    for name, told in parameters.items():
        if not isinstance(told, dict):
            raise RowRefused(f"has a parameter {name!r} that is not an object")
        kind, optional, _ = str(told.get("type", "")).partition(", optional")
        schema = schema_of_type(kind)
        if isinstance(told.get("description"), str):
            schema["description"] = told["description"]
        if told.get("default") is not None:
            schema["default"] = told["default"]
        properties[name] = schema
        if not optional and told.get("default") is None:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


def schema_of_type(kind: str) -> Json:
    """The JSON Schema of a type as Python writes it; an empty one, which takes anything, for a
    type that is not known.
    """
    generic = _GENERIC.fullmatch(kind.strip())
    plain = (generic[1] if generic else kind.strip()).lower()
    if plain == "optional" and generic:
        return schema_of_type(generic[2])
    if plain not in _TYPES:
        return {}
    schema: Json = {"type": _TYPES[plain]}
    if generic and schema["type"] == "array" and plain != "tuple":
        schema["items"] = schema_of_type(generic[2])
    return schema
