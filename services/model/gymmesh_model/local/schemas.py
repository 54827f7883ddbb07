"""Makes any tool's parameter schema one that the constraint engine can compile.

The engine (llguidance, inside llama.cpp's server) refuses a whole grammar for one bad
keyword, and the server then generates without any constraint. So a schema is loosened first:
keywords that the engine cannot express are removed. The loosened schema still accepts every
document that the original accepts. Keywords are those of JSON Schema 2020-12.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeGuard

Schema = dict[str, Any]

_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})
_FORMATS: Final = frozenset({"date", "time", "date-time", "uuid", "email", "ipv4", "ipv6"})
_MAX_DEPTH: Final = 12
_MAX_REPEAT: Final = 1000
_MAX_UNFOLDED: Final = 100_000
_MAX_PATTERN_CHARS: Final = 500
_EXACT_INTEGER: Final = 2**53

# What the engine's automaton-based regexes lack (look-around, back references, word
# boundaries, inline flags), and a literal backslash: seen with xllamacpp 2026.10, the engine
# lets a string end early right after one.
_UNSUPPORTED_PATTERN: Final = re.compile(r"\(\?(?!:)|\\[bBAZzGkKpPuUcxQE0-9\\]|[*+?}][+?]|\[\^?\]")
# Braces that count nothing are literal in ECMA-262 and Python and an error in the engine;
# inside classes it knows set operators.
_STRAY_BRACE: Final = re.compile(r"\{(?!\d+(?:,\d*)?\})|(?<![\d,])\}")
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_SET_OPERATOR: Final = re.compile(r"\[|&&|--|~~|^\^?\]")
_PLAIN_REPEAT: Final = re.compile(r"\{(\d+)(?:,(\d*))?\}")


def is_supported_pattern(pattern: str) -> bool:
    """Whether the constraint engine can hold a string to this regular expression.

    The common ground of ECMA-262 and automaton engines: literals, classes, groups,
    alternation, greedy repetition, `^` first and `$` last. No literal backslash.
    """
    if len(pattern) > _MAX_PATTERN_CHARS or _UNSUPPORTED_PATTERN.search(pattern):
        return False
    try:
        with warnings.catch_warnings():
            # Python's notice that another engine may read a set operator here.
            warnings.simplefilter("error", FutureWarning)
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError, FutureWarning):
        return False
    # An upper bound of how many copies the counted repetitions unfold to.
    counts = (max(int(low), int(high or 0), 1) for low, high in _PLAIN_REPEAT.findall(pattern))
    if math.prod(counts) > _MAX_UNFOLDED:
        return False
    escaped = re.sub(r"\\.", "e", pattern, flags=re.DOTALL)
    if any(_SET_OPERATOR.search(found[1:-1]) for found in _CLASS.findall(escaped)):
        return False
    if _STRAY_BRACE.search(_CLASS.sub("c", escaped)):
        return False
    return _anchors_are_outermost(pattern)


def loosen(schema: object) -> Schema:
    """A schema that accepts at least what `schema` accepts and that always compiles.

    One exception: an object that declares properties and does not mention
    `additionalProperties` is closed. Takes anything (a broken schema becomes `{}`, any JSON
    value); the argument is not changed. Local references (`#/…`) are written out in place,
    recursion ends in `{}`.
    """
    root: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
    return _loosen(schema, root, 0)


def _loosen(schema: object, root: Mapping[str, Any], depth: int) -> Schema:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return {}
    if "$ref" in schema:
        return _loosen(_resolve(schema["$ref"], root), root, depth + 1)
    if "const" in schema:
        return {"const": schema["const"]}
    values = schema.get("enum")
    if _is_list(values) and values:
        return {"enum": list(values)}
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        if _is_list(options) and options:
            return _union([_loosen(option, root, depth + 1) for option in options])
    every = schema.get("allOf")
    if _is_list(every) and len(every) == 1:
        return _loosen(every[0], root, depth + 1)
    kinds = _kinds(schema)
    return _union([_of_kind(kind, schema, root, depth) for kind in kinds]) if kinds else {}


def _union(options: list[Schema]) -> Schema:
    if len(options) == 1:
        return options[0]
    # An option that accepts anything makes the others idle, and blows up the grammar.
    return {} if {} in options else {"anyOf": options}


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    """The JSON types that a schema allows; [] when it does not say, or says nonsense."""
    kind = schema.get("type")
    if kind is None:
        # By the standard `properties` alone lets non-objects pass; no tool author means it.
        return ["object"] if isinstance(schema.get("properties"), Mapping) else []
    kinds = list(kind) if _is_list(kind) else [kind]
    return kinds if all(isinstance(one, str) and one in _TYPES for one in kinds) else []


def _of_kind(kind: str, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Schema:
    if kind == "object":
        return _object(schema, root, depth)
    if kind == "array":
        return _array(schema, root, depth)
    if kind == "string":
        return _string(schema)
    if kind == "integer":
        return {"type": "integer", **_bounds(schema, "minimum", "maximum", _EXACT_INTEGER)}
    return {"type": kind}


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Schema:
    given = schema.get("properties")
    properties = given if isinstance(given, Mapping) else {}
    loose = {str(name): _loosen(value, root, depth + 1) for name, value in properties.items()}
    result: Schema = {"type": "object", "properties": loose}
    wanted = schema.get("required")
    if _is_list(wanted):
        result["required"] = [n for n in dict.fromkeys(map(str, wanted)) if n in loose]
    open_ended = schema.get("additionalProperties", not properties)
    if schema.get("patternProperties"):
        open_ended = True
    if isinstance(open_ended, Mapping):
        result["additionalProperties"] = _loosen(open_ended, root, depth + 1)
    else:
        # Left open, a small model fills an object with properties nobody declared.
        result["additionalProperties"] = bool(open_ended)
    return result


def _array(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Schema:
    result: Schema = {"type": "array", **_bounds(schema, "minItems", "maxItems", _MAX_REPEAT)}
    first = schema.get("prefixItems")
    if _is_list(first):
        result["prefixItems"] = [_loosen(item, root, depth + 1) for item in first]
    if "items" in schema and schema["items"] is not False:
        result["items"] = _loosen(schema["items"], root, depth + 1)
    return result


def _string(schema: Mapping[str, Any]) -> Schema:
    result: Schema = {"type": "string", **_bounds(schema, "minLength", "maxLength", _MAX_REPEAT)}
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and is_supported_pattern(pattern):
        result["pattern"] = pattern
    elif schema.get("format") in _FORMATS and len(result) == 1:
        result["format"] = schema["format"]
    return result


def _bounds(schema: Mapping[str, Any], low: str, high: str, limit: int) -> Schema:
    """The two bounds where they are plain, small enough and in order; else none."""
    found = {key: schema[key] for key in (low, high) if type(schema.get(key)) is int}
    found = {key: value for key, value in found.items() if abs(value) <= limit}
    if low in found and high in found and found[low] > found[high]:
        return {}
    if low != "minimum" and any(value < 0 for value in found.values()):
        return {}
    return found


def _resolve(reference: object, root: Mapping[str, Any]) -> object:
    """The target of a local JSON pointer (RFC 6901), or {} when there is none."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return {}
    node: object = root
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and name in node:
            node = node[name]
        else:
            return {}
    return node


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _anchors_are_outermost(pattern: str) -> bool:
    body = _CLASS.sub("c", re.sub(r"\\.", "e", pattern, flags=re.DOTALL))
    if "^" not in body and "$" not in body:
        return True
    body = body.removeprefix("^").removesuffix("$")
    if "^" in body or "$" in body:
        return False
    # In `^a|b$` each anchor belongs to one branch only.
    return "|" not in _outside_groups(body)


def _outside_groups(body: str) -> str:
    depth, kept = 0, []
    for char in body:
        depth += (char == "(") - (char == ")")
        if depth == 0:
            kept.append(char)
    return "".join(kept)
