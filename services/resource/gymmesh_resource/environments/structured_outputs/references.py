"""Whether a schema's references can be resolved. Pure.

A reference to a missing part of the schema, or one that returns to itself without any constraint,
gives no rule for judging an answer. It is detected before there is an answer, so that no answer
decides whether it is reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

# Keywords whose schemas are applied to the same value, and to parts of it.
_SAME: Final = ("not", "if", "then", "else", "allOf", "anyOf", "oneOf", "dependentSchemas")
_PARTS: Final = (
    "additionalProperties", "propertyNames", "items", "contains", "unevaluatedItems",
    "unevaluatedProperties", "prefixItems", "properties", "patternProperties",
)  # fmt: skip
# Those of them that have a list of schemas, and schemas by name.
_LISTED: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED: Final = ("dependentSchemas", "properties", "patternProperties")


def reference_problem(schema: dict[str, Any]) -> str | None:
    """What is wrong with the references of a schema, as a clause about it; None: nothing.

    References that need more than a place in this document (`$id`, `$anchor`, other documents)
    are not followed.
    """
    seen: set[int] = set()
    sound: set[int] = set()
    waiting: list[Any] = [schema]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, dict) or id(one) in seen or _is_foreign(one, schema):
            continue
        seen.add(id(one))
        problem = _endless(one, schema, [], sound)
        if problem is not None:
            return problem
        waiting += [*_applied(one, _PARTS + _SAME), *referred(one, schema)]
    return None


def _endless(one: Any, root: dict[str, Any], above: list[int], sound: set[int]) -> str | None:
    """The problem of a schema and of those that are applied to the same value with it.

    `sound`: those that have none, each of which is looked at once.
    """
    if not isinstance(one, dict) or id(one) in sound or _is_foreign(one, root):
        return None
    if id(one) in above:
        return "refers to itself without end"
    place, targets = _place(one), referred(one, root)
    if place is not None and not targets:
        return f"refers to a part that does not exist: {place!r}"
    for part in (*targets, *_applied(one, _SAME)):
        problem = _endless(part, root, [*above, id(one)], sound)
        if problem is not None:
            return problem
    sound.add(id(one))
    return None


def _applied(schema: dict[str, Any], keywords: tuple[str, ...]) -> Iterator[Any]:
    for key in keywords:
        value = schema.get(key)
        if key in _LISTED:
            yield from value if isinstance(value, list) else ()
        elif key in _NAMED:
            yield from value.values() if isinstance(value, dict) else ()
        else:
            yield value


def _is_foreign(schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Whether it is a document of its own, whose references begin there."""
    return schema is not root and isinstance(schema.get("$id"), str)


def _place(schema: dict[str, Any]) -> str | None:
    """The place in the document that the schema refers to, if any."""
    reference = schema.get("$ref")
    here = isinstance(reference, str) and (reference == "#" or reference.startswith("#/"))
    return reference if here else None


def referred(schema: dict[str, Any], root: dict[str, Any]) -> list[Any]:
    """The part of the schema at the reference, if it exists."""
    place = _place(schema)
    if place is None:
        return []
    found: Any = root
    for part in unquote(place[1:]).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key[:9]) < len(found):
            found = found[int(key[:9])]
        else:
            return []
    return [found]
