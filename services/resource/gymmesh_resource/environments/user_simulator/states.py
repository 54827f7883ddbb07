"""States as JSON: changed by merge patches (RFC 7396), compared, described. Pure.

No function here changes what it is given.
"""

from __future__ import annotations

from typing import Any

_MOST = 20


def patched(state: Any, patch: Any) -> Any:
    """The state with a merge patch applied: objects are merged, null removes, the rest replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(state) if isinstance(state, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = patched(merged.get(key), value)
    return merged


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal; text but for case and spacing, and true is not 1."""
    if isinstance(one, str) and isinstance(other, str):
        return " ".join(one.casefold().split()) == " ".join(other.casefold().split())
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def covers(value: Any, wanted: Any) -> bool:
    """Whether a value has all that is wanted; objects may have more keys."""
    if isinstance(value, dict) and isinstance(wanted, dict):
        return all(key in value and covers(value[key], wanted[key]) for key in wanted)
    return same(value, wanted)


def differences(wanted: Any, found: Any) -> list[str]:
    """The places that differ, such as `orders.W1.status`, at most 20 of them."""
    return _places(wanted, found, "")[:_MOST]


def _places(wanted: Any, found: Any, at: str) -> list[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        places: list[str] = []
        for key in sorted({*wanted, *found}):
            here = f"{at}.{key}" if at else str(key)
            if (key in wanted) != (key in found):
                places.append(here)
            else:
                places.extend(_places(wanted[key], found[key], here))
        return places
    return [] if same(wanted, found) else [at or "the whole state"]
