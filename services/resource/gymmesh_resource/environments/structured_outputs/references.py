"""Whether a schema's references lead anywhere. Pure.

A reference to what is not in the schema, or one that comes back to itself before it says anything,
leaves nothing to judge an answer by. It is looked for before any answer is there, so that no
answer decides whether it is met.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

# Keywords whose schemas are applied to the same value: one of them, several, and by name.
_SAME_ONE: Final = ("not", "if", "then", "else")
_SAME_SEVERAL: Final = ("allOf", "anyOf", "oneOf")
_SAME_NAMED: Final = ("dependentSchemas",)
# Those whose schemas are applied to parts of the value.
_PART_ONE: Final = (
    "additionalProperties", "propertyNames", "items", "contains", "unevaluatedItems",
    "unevaluatedProperties",
)  # fmt: skip
_PART_SEVERAL: Final = ("prefixItems",)
_PART_NAMED: Final = ("properties", "patternProperties")


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
        waiting += _applied(one, _PART_ONE, _PART_SEVERAL, _PART_NAMED)
        waiting += _applied(one, _SAME_ONE, _SAME_SEVERAL, _SAME_NAMED)
        waiting += _referred(one, schema)
    return None


def _endless(one: Any, root: dict[str, Any], above: list[int], sound: set[int]) -> str | None:
    """The problem of a schema and of those that are applied to the same value with it.

    `sound`: those that have none, each of which is looked at once.
    """
    if not isinstance(one, dict) or id(one) in sound or _is_foreign(one, root):
        return None
    if id(one) in above:
        return "refers to itself without end"
    reference = one.get("$ref")
    if isinstance(reference, str) and _is_place(reference) and not _referred(one, root):
        return f"refers to what is not in it: {reference!r}"
    inner = [*above, id(one)]
    same = [*_referred(one, root), *_applied(one, _SAME_ONE, _SAME_SEVERAL, _SAME_NAMED)]
    for part in same:
        problem = _endless(part, root, inner, sound)
        if problem is not None:
            return problem
    sound.add(id(one))
    return None


def _applied(
    schema: dict[str, Any], one: tuple[str, ...], several: tuple[str, ...], named: tuple[str, ...]
) -> Iterator[Any]:
    for key in one:
        yield schema.get(key)
    for key in several:
        listed = schema.get(key)
        yield from listed if isinstance(listed, list) else ()
    for key in named:
        by_name = schema.get(key)
        yield from by_name.values() if isinstance(by_name, dict) else ()


def _is_foreign(schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Whether it is a document of its own, whose references begin there."""
    return schema is not root and isinstance(schema.get("$id"), str)


def _is_place(reference: str) -> bool:
    return reference == "#" or reference.startswith("#/")


def _referred(schema: dict[str, Any], root: dict[str, Any]) -> list[Any]:
    """What the schema's `$ref` stands for, if that is a place that is there."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not _is_place(reference):
        return []
    found: Any = root
    for part in unquote(reference[1:]).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key[:9]) < len(found):
            found = found[int(key[:9])]
        else:
            return []
    return [found]
