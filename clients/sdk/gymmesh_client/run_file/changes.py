"""Which keys of a configuration differ from what a run was begun with. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from gymmesh_client.run_file.secrets import is_masked

_NAMED: Final = 5
_LONGEST: Final = 60
_NO_VALUE: Final = object()


class ValueChange(NamedTuple):
    """A key whose value changed."""

    path: str  # such as `agents.tool_loop.max_steps`; empty: the whole value
    old: str  # what it was, as JSON; empty where the key was not there
    new: str  # what it is; empty where it is gone

    def __str__(self) -> str:
        if not self.path:
            return f"was {self.old} and is {self.new}"  # all of it: the caller names it
        if not self.old:
            return f"{self.path} is new: {self.new}"
        if not self.new:
            return f"{self.path} is gone: it was {self.old}"
        return f"{self.path} was {self.old} and is {self.new}"


def changes(old: Any, new: Any) -> list[ValueChange]:
    """The keys in which two JSON values differ, in the order of their paths.

    Values that either of them omits as secret count as equal.
    """
    return sorted(_changes("", old, new))


def described(found: list[ValueChange]) -> str:
    """The changes as one clause; only the first few where there are many."""
    shown = [str(one) for one in found[:_NAMED]]
    if len(found) > _NAMED:
        shown.append(f"and {len(found) - _NAMED} more")
    return ", ".join(shown)


def _changes(path: str, old: Any, new: Any) -> Iterator[ValueChange]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            below = f"{path}.{key}" if path else str(key)
            yield from _changes(below, old.get(key, _NO_VALUE), new.get(key, _NO_VALUE))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _changes(f"{path}[{place}]", one, other)
    elif not (is_masked(old) or is_masked(new)) and _spelled(old) != _spelled(new):
        yield ValueChange(path, _short(old), _short(new))


def _spelled(value: Any) -> str:
    return "" if value is _NO_VALUE else json.dumps(value, sort_keys=True)


def _short(value: Any) -> str:
    text = _spelled(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 2]} …"
