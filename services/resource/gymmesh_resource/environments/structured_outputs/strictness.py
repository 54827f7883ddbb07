"""Schemas of all drafts as strict ones of draft 2020-12. Pure.

Strict: an object has all properties that its schema names, wherever it names them, and no others.

`current` rewrites what older drafts say in other words (`dependencies`, lists of `items`,
`exclusiveMinimum: true`) and patterns of ECMA 262. `strict` then adds what is required, and closes
objects: by `additionalProperties` where one schema alone names the properties, and by
`unevaluatedProperties` where others (`allOf`, `$ref`, …) are applied to the same object. The
schemas of an `anyOf` or `oneOf` are closed one by one, so that the properties say which is meant.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from gymmesh_resource.environments.structured_outputs.ecma import python_pattern
from gymmesh_resource.environments.structured_outputs.references import referred

# Keywords with one schema, a list of schemas, and schemas by name.
_ONE: Final = (
    "not", "if", "then", "else", "items", "additionalItems", "additionalProperties",
    "propertyNames", "contains", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_LISTED: Final = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas",
                 "dependencies")  # fmt: skip
# Those whose schemas are applied to the same value, and are no conditions.
_HERE: Final = ("then", "else")
_HERE_LISTED: Final = ("allOf", "anyOf", "oneOf")
_HERE_NAMED: Final = ("dependentSchemas", "$defs", "definitions")
# Those whose schemas say what is asked about a value, not what it has to be.
_CONDITIONS: Final = ("not", "if", "contains", "propertyNames")
_CHOICES: Final = ("anyOf", "oneOf")
# Drafts in which nothing beside a `$ref` counts.
_REF_ALONE: Final = ("draft-03", "draft-04", "draft-06", "draft-07")


def current(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema in the words of draft 2020-12, with patterns for Python. Raises `PatternError`."""
    draft = schema.get("$schema")
    alone = isinstance(draft, str) and any(name in draft for name in _REF_ALONE)
    renewed: dict[str, Any] = _current(schema, alone, is_root=True)
    renewed.pop("$schema", None)
    return renewed


def _current(schema: Any, alone: bool, *, is_root: bool = False) -> Any:
    if not isinstance(schema, dict):
        return schema
    new = {key: _renewed(key, value, alone) for key, value in schema.items()}
    if alone and isinstance(new.get("$ref"), str):
        kept = ("$ref", "$defs", "definitions") if is_root else ("$ref",)
        return {key: new[key] for key in kept if key in new}
    _split_dependencies(new)
    if isinstance(new.get("items"), list):
        new["prefixItems"] = new.pop("items")
        if "additionalItems" in new:
            new["items"] = new.pop("additionalItems")
    for bound, other in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(new.get(bound), bool) and new.pop(bound) and other in new:
            new[bound] = new.pop(other)
    return new


def _renewed(key: str, value: Any, alone: bool) -> Any:
    """The value of a keyword."""
    if key == "pattern" and isinstance(value, str):
        return python_pattern(value)
    if key in _NAMED and isinstance(value, dict):
        inner = {name: _current(one, alone) for name, one in value.items()}
        if key == "patternProperties":
            return {python_pattern(name): one for name, one in inner.items()}
        return inner
    if key in _LISTED and isinstance(value, list):
        return [_current(one, alone) for one in value]
    return _current(value, alone) if key in _ONE else value


def _split_dependencies(schema: dict[str, Any]) -> None:
    """Write draft 7's `dependencies` as `dependentRequired` and `dependentSchemas`."""
    if not isinstance(schema.get("dependencies"), dict):
        return
    for name, needed in schema.pop("dependencies").items():
        is_list = isinstance(needed, list)
        schema.setdefault("dependentRequired" if is_list else "dependentSchemas", {})[name] = needed


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, with all properties required and no others allowed."""
    closed: dict[str, Any] = _closed(schema, schema)
    return closed


def _closed(schema: Any, root: dict[str, Any], known: Iterable[str] = ()) -> Any:
    """The strict schema of a whole value. `known`: properties that other schemas name for it."""
    if not isinstance(schema, dict):
        return schema
    new = _opened(schema, root)
    names = _names(schema, root)
    if not names:  # `_opened` took away what others could have contradicted
        closing = ("additionalProperties", "unevaluatedProperties")
        return new | {key: _closed(schema[key], root) for key in closing if key in schema}
    for key in _CHOICES:
        if isinstance(schema.get(key), list):
            others = {**schema, key: []}
            beside = dict.fromkeys([*known, *_names(others, root)])
            new[key] = [
                _closed(one, root, beside) if _names(one, root) else _opened(one, root)
                for one in schema[key]
            ]
    if known:
        new["properties"] = {**dict.fromkeys(known, True), **new.get("properties", {})}
    alone = names == _own_names(schema) and "patternProperties" not in schema
    new.pop("additionalProperties", None)
    new.pop("unevaluatedProperties", None)
    new["additionalProperties" if alone or not _applies(schema) else "unevaluatedProperties"] = (
        False
    )
    return new


def _opened(schema: Any, root: dict[str, Any]) -> Any:
    """The strict schema of a value that other schemas speak of as well: it allows further
    properties, which the others may name.
    """
    if not isinstance(schema, dict):
        return schema
    new: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _CONDITIONS:
            new[key] = value
        elif key in _HERE:
            new[key] = _opened(value, root)
        elif key in _HERE_LISTED and isinstance(value, list):
            new[key] = [_opened(one, root) for one in value]
        elif key in _HERE_NAMED and isinstance(value, dict):
            new[key] = {name: _opened(one, root) for name, one in value.items()}
        elif key in _LISTED and isinstance(value, list):
            new[key] = [_closed(one, root) for one in value]
        elif key in _NAMED and isinstance(value, dict):
            new[key] = {name: _closed(one, root) for name, one in value.items()}
        else:
            new[key] = _closed(value, root) if key in _ONE else value
    own = schema.get("properties")
    if isinstance(own, dict):
        given = new.get("required", [])
        if isinstance(given, list):
            new["required"] = [*given, *(name for name in own if name not in given)]
        new.pop("additionalProperties", None)
        new.pop("unevaluatedProperties", None)
    return new


def _own_names(schema: dict[str, Any]) -> set[str]:
    own = schema.get("properties")
    return set(own) if isinstance(own, dict) else set()


def _applies(schema: dict[str, Any]) -> bool:
    """Whether other schemas are applied to the same value."""
    return any(key in schema for key in (*_HERE_LISTED, *_HERE, "if", "dependentSchemas", "$ref"))


def _names(schema: Any, root: dict[str, Any]) -> set[str]:
    """The properties that a schema, and all that are applied with it, name for one object."""
    names: set[str] = set()
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, dict) or id(one) in seen:
            continue
        seen.add(id(one))
        names |= _own_names(one)
        waiting += referred(one, root)
        waiting += [one[key] for key in (*_HERE, "if") if key in one]
        for key in _HERE_LISTED:
            waiting += one[key] if isinstance(one.get(key), list) else ()
        dependent = one.get("dependentSchemas")
        waiting += dependent.values() if isinstance(dependent, dict) else ()
    return names
