"""Questions, functions and calls of BFCL. Pure; each raises RowRefused."""

from __future__ import annotations

from itertools import product
from typing import Any, Final

from gymmesh_data.imports.datasets.functions import (
    called_tool,
    distinct,
    schema_of_type,
    tool_of,
)
from gymmesh_data.imports.items import RowRefused
from gymmesh_data.rollout import Json

_KEYWORDS: Final = frozenset(
    ("type", "properties", "required", "items", "enum", "description", "default", "minimum",
     "maximum", "minItems", "maxItems", "additionalProperties", "format", "pattern")
)  # fmt: skip
_OTHER_LANGUAGES: Final = ("java", "javascript", "rest", "sql")
# Ways to write one argument; more are hardly meant.
_MOST_VARIANTS: Final = 256


def single_turn(question: Any) -> list[Json]:
    """The messages of a question: a text, messages, or one turn of messages."""
    if isinstance(question, str):
        return [{"role": "user", "content": question}]
    turns = question if isinstance(question, list) else []
    if turns and all(isinstance(one, dict) for one in turns):
        return turns
    if len(turns) != 1:
        raise RowRefused(f"has {len(turns)} turns; only single-turn questions can be scored")
    (messages,) = turns
    if not isinstance(messages, list) or not messages:
        raise RowRefused("must hold the messages of one turn")
    return messages


def bfcl_tools(row_id: str, functions: list[Json]) -> list[Json]:
    """The functions as tools, with the types of JSON Schema."""
    words = row_id.lower().replace("-", "_").split("_")
    if other := next((one for one in _OTHER_LANGUAGES if one in words), ""):
        raise RowRefused(f"has category {other}, whose calls are not JSON; remove the row")
    return _tools(functions)


def _tools(functions: list[Json]) -> list[Json]:
    tools = []
    for one in functions:
        given = one.get("parameters")
        parameters = _json_schema(given) if isinstance(given, dict) else {}
        parameters |= {"type": "object"}
        parameters.setdefault("properties", {})
        tools.append(tool_of(one.get("name"), one.get("description"), parameters))
    return distinct(tools)


def bfcl_calls(functions: list[Json], truth: list[Json]) -> list[Json]:
    """The expected calls: `arguments` has the first value of each required argument, `accepted` all
    values of arguments with several right values, `optional` the arguments that may be omitted.
    """
    tools = _tools(functions)
    if not truth:
        raise RowRefused("is empty. If the question needs no call, omit the key 'ground_truth'")
    calls = []
    for one in truth:
        if len(one) != 1:
            raise RowRefused("must have one function for each call")
        ((name, arguments),) = one.items()
        called = called_tool(name, arguments, tools)
        calls.append(_call(called, arguments))
    return calls


def _call(name: str, arguments: Json) -> Json:
    first, accepted, optional = dict[str, Any](), dict[str, list[Any]](), list[str]()
    for argument, values in arguments.items():
        if not isinstance(values, list) or not values:
            raise RowRefused(f"{name}.{argument}: must be a list of its allowed values")
        if "" in values and len(values) > 1:
            optional.append(argument)
        ways = [way for value in values if value != "" or len(values) == 1 for way in _ways(value)]
        first[argument] = ways[0]
        if len(ways) > 1:
            accepted[argument] = ways
    call: Json = {"name": name, "arguments": first}
    if accepted:
        call["accepted"] = accepted
    if optional:
        call["optional"] = optional
    return call


def _ways(value: Any) -> list[Any]:
    """The values that one may stand for: an object has a list of values for each key."""
    if isinstance(value, list):
        return [list(way) for way in _products([_ways(one) for one in value])]
    if not isinstance(value, dict):
        return [value]
    keys, choices = [], []
    for key, values in value.items():
        if not isinstance(values, list):
            return [value]
        keys.append(key)
        choices.append([way for one in values for way in ([_ABSENT] if one == "" else _ways(one))])
    return [
        {key: one for key, one in zip(keys, way, strict=True) if one is not _ABSENT}
        for way in _products(choices)
    ]


_ABSENT: Final = object()


def _products(choices: list[list[Any]]) -> list[tuple[Any, ...]]:
    count = 1
    for one in choices:
        count *= len(one)
    if count > _MOST_VARIANTS:
        raise RowRefused(f"has an argument with {count} values, more than {_MOST_VARIANTS}")
    return list(product(*choices))


def _json_schema(schema: Json) -> Json:
    """BFCL's schema, which names types as Python does, as JSON Schema."""
    found: Json = {
        key: schema[key] for key in schema if key in _KEYWORDS and schema[key] is not None
    }
    kind = found.pop("type", None)
    if isinstance(kind, str):
        found |= schema_of_type(kind)
    properties = found.get("properties")
    if isinstance(properties, dict):
        found["properties"] = {
            key: _json_schema(one) for key, one in properties.items() if isinstance(one, dict)
        }
    if isinstance(found.get("items"), dict):
        found["items"] = _json_schema(found["items"])
    return found
