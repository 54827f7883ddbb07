"""Whether a document of XML can fit a schema. Pure.

A document has one root element, which counts as the one key of an object. A schema that wants two
keys, none, or one that can't be an element's name, fits no document.
"""

from __future__ import annotations

import re
from typing import Any, Final

from gymmesh_resource.environments.structured_outputs.references import referred

# What no parser takes for a name: spaces and signs in it; a digit, a hyphen or a dot in front.
_NO_NAME = re.compile(r"\A(?:[\d.-]|\Z)|[\s<>&\"'/=;,!?()\[\]{}@#$%^*+|~`\\]")
_ADVICE: Final = ". Put the properties below one property, which becomes the root element"


def root_problem(schema: dict[str, Any]) -> str | None:
    """What keeps all documents of XML from fitting a strict schema, as a clause about it; None
    where nothing is found that does.
    """
    needed = _needed(schema, schema, {})
    least = schema.get("minProperties", 0)
    if len(needed) > 1:
        names = ", ".join(repr(name) for name in sorted(needed)[:3])
        return (
            f"requires {len(needed)} keys ({names}), but an XML document has one root "
            f"element{_ADVICE}"
        )
    if isinstance(least, int) and least > 1:
        return f"requires {least} keys, but an XML document has one root element{_ADVICE}"
    if _allows_none(schema):
        return f"allows no key, but an XML document has a root element, which is a key{_ADVICE}"
    for name in needed:
        if _NO_NAME.search(name) is not None:
            return f"requires the key {name[:50]!r}, which is not a valid name of an XML element"
    return None


def _allows_none(schema: dict[str, Any]) -> bool:
    named = schema.get("properties") or schema.get("patternProperties")
    return schema.get("maxProperties") == 0 or (
        schema.get("additionalProperties") is False and not named
    )


def _needed(schema: Any, root: dict[str, Any], known: dict[int, set[str]]) -> set[str]:
    """The keys of every object that fits. Of choices that all want several, the fewest count.

    `known`: those of the schemas that were looked at.
    """
    if not isinstance(schema, dict):
        return set()
    if id(schema) in known:
        return known[id(schema)]
    known[id(schema)] = set()  # for one that refers to itself
    names = {name for name in _list(schema.get("required")) if isinstance(name, str)}
    for one in [*referred(schema, root), *_list(schema.get("allOf"))]:
        names |= _needed(one, root, known)
    for key in ("anyOf", "oneOf"):
        found = [_needed(one, root, known) for one in _list(schema.get(key))]
        if found:
            least = min(found, key=lambda one: len(names | one))
            names |= least if len(names | least) > 1 else set.intersection(*found)
    known[id(schema)] = names
    return names


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
