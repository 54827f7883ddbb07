"""Tools of an environment as methods, which is how TRL takes them. Pure.

TRL shows a model the schema that transformers makes of a method: of its type hints, and of a
docstring in Google's form. The method here takes whatever the model wrote, so that the environment
itself judges it; only what is shown goes through hints. Interface: transformers 5,
`transformers.utils.get_json_schema`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, Final, Literal

from gymmesh.responses.v1 import responses_pb2
from gymmesh_client import UserError
from gymmesh_responses import loads, tool_to_dict

Call = Callable[[Any, str, dict[str, Any]], Any]
"""Calls a tool: of the object whose method it is, by name, with arguments."""

_TYPES: Final[Mapping[str, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": type(None),
    "object": dict,
    "array": list,
}
# TRL takes these methods for its own.
_TAKEN: Final = frozenset(("reset", "get_reward"))
_IGNORED: Final = frozenset(("title",))


def schema_of(tool: responses_pb2.Tool) -> dict[str, Any]:
    """A tool's name, description and parameters. Raises UserError for one that TRL cannot call."""
    if not tool.HasField("function"):
        raise UserError(
            f"tool {tool_to_dict(tool)}: is not a function, and TRL only calls functions"
        )
    function = tool.function
    name = function.name
    if name in _TAKEN or name.startswith("_"):
        raise UserError(
            f"tool {name!r}: TRL does not support this tool name. Collect with TrlRollouts instead"
        )
    parameters = loads(function.parameters_json) if function.parameters_json else {}
    if not isinstance(parameters, dict):
        parameters = {}
    return {"name": name, "description": function.description, "parameters": parameters}


def tool_method(schema: Mapping[str, Any], call: Call) -> Callable[..., Any]:
    """The method of a tool; it calls `call`."""
    name = str(schema["name"])

    def method(self: Any, /, **arguments: Any) -> Any:
        return call(self, name, arguments)

    properties, required = (schema["parameters"].get(key) for key in ("properties", "required"))
    properties = properties if isinstance(properties, dict) else {}
    needed = frozenset(required if isinstance(required, list) else ())
    hints = {one: _hint(value) for one, value in properties.items()}
    method.__name__ = method.__qualname__ = name
    method.__annotations__ = hints
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
    for one, hint in hints.items():
        default = inspect.Parameter.empty if one in needed else None
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(one, kind, default=default, annotation=hint))
    method.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # is read
    method.__doc__ = _docstring(schema, properties)
    return method


def unsaid(schema: Mapping[str, Any], shown: Mapping[str, Any]) -> list[str]:
    """What of a tool's schema the schema that is shown does not say, as paths. Pure.

    Args:
        shown: what transformers makes of the method: `get_json_schema(method)["function"]`.
    """
    wanted = {"description": _one_line(schema["description"]), "parameters": schema["parameters"]}
    made = {"description": _one_line(shown.get("description")), "parameters": shown["parameters"]}
    return sorted(set(_differences(wanted, made, "")))


def _hint(schema: Any) -> Any:
    """A type hint of which transformers makes this schema, or the nearest."""
    if not isinstance(schema, dict):
        return Any
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        if all(type(one) in (str, int, float, bool, type(None)) for one in choices):
            return Literal[tuple(choices)]
        return Any
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list) and options:
        return _union([_hint(one) for one in options])
    kind = schema.get("type")
    if isinstance(kind, list) and kind:
        return _union([_hint({**schema, "type": one}) for one in kind])
    if kind == "array" and isinstance(schema.get("items"), dict):
        return list[_hint(schema["items"])]  # type: ignore[misc]  # made as the program runs
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return dict[str, _hint(schema["additionalProperties"])]  # type: ignore[misc]  # likewise
    return _TYPES.get(kind, Any) if isinstance(kind, str) else Any


def _union(hints: Sequence[Any]) -> Any:
    return Any if Any in hints else reduce(or_, hints)


def _docstring(schema: Mapping[str, Any], properties: Mapping[str, Any]) -> str:
    """In Google's form; an argument must have words, so one without gets its name."""
    lines = [_one_line(schema["description"]) or str(schema["name"])]
    if properties:
        lines += ["", "Args:"]
    for name, value in properties.items():
        words = _one_line(value.get("description")) if isinstance(value, dict) else ""
        lines.append(f"    {name}: {words or name}")
    return "\n".join(lines)


def _one_line(text: Any) -> str:
    return " ".join(text.split()) if isinstance(text, str) else ""


def _differences(wanted: Any, made: Any, path: str) -> list[str]:
    if not isinstance(wanted, dict) or not isinstance(made, dict):
        same = wanted == made
        if isinstance(wanted, list) and isinstance(made, list):
            same = sorted(map(repr, wanted)) == sorted(map(repr, made))
        return [] if same else [path]
    found = []
    for key, value in wanted.items():
        here = f"{path}.{key}".lstrip(".")
        empty = key == "description" and not _one_line(value)
        if key in _IGNORED or empty or (key == "additionalProperties" and value is False):
            continue
        if key == "required" and not value and key not in made:
            continue
        if key == "description" and isinstance(value, str):
            value, held = _one_line(value), _one_line(made.get(key))
            found += [] if value == held else [here]
        elif key not in made:
            found.append(here)
        else:
            found += _differences(value, made[key], here)
    return found
