"""A session's state as JSON, so that a rollout can be judged again when its session is gone. Pure.

JSON values (objects with text keys, lists, texts, numbers, booleans, null) are unchanged. Other
Python values are an object with one key that begins with `$`:

    {"$counter": [["apple", 2]]}            a Counter; also `$dict`, `$tuple`, `$set`, …
    {"$dataclass": "Desk", "fields": {…}}   a dataclass that the environment's module knows by name
    {"$enum": "Side.LEFT"}                  a member of such an enum
    {"$date": "2026-07-01"}                 a date; also `$time`, `$decimal`, `$uuid`, `$path`, …

Rows are untrusted: reading them creates only these values, and calls no code of the author.
"""

from __future__ import annotations

import base64
import dataclasses
import math
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePosixPath
from types import ModuleType, SimpleNamespace
from typing import Any, Final
from uuid import UUID

from gymmesh_responses import CodecError, dumps, loads

_DEEPEST: Final = 64
_PLAIN: Final = (str, bool, int, type(None))
_LISTS: Final[dict[type, str]] = {
    tuple: "$tuple",
    set: "$set",
    frozenset: "$frozenset",
    deque: "$deque",
}
_PAIRS: Final[dict[type, str]] = {dict: "$dict", Counter: "$counter"}
_FACTORIES: Final = {one.__name__: one for one in (int, float, str, list, dict, set)}
_MAKES: Final[dict[str, Callable[[Iterable[Any]], Any]]] = {
    **{name: kind for kind, name in _LISTS.items()},
    "$dict": dict,
    "$counter": lambda pairs: Counter(dict(pairs)),
}
# Values that are kept as a text, and what reads it.
_TEXTS: Final[dict[type, str]] = {
    date: "$date",
    time: "$time",
    datetime: "$datetime",
    timedelta: "$timedelta",
    Decimal: "$decimal",
    UUID: "$uuid",
    type(Path()): "$path",
    PurePosixPath: "$purepath",
}
_OF_TEXT: Final[dict[str, Callable[[str], Any]]] = {
    "$date": date.fromisoformat,
    "$time": time.fromisoformat,
    "$datetime": datetime.fromisoformat,
    "$timedelta": lambda text: timedelta(*map(int, text.split())),
    "$decimal": Decimal,
    "$uuid": UUID,
    "$path": Path,
    "$purepath": PurePosixPath,
}


class NotKept(ValueError):
    """A state can't be kept; the text says why, in one clause."""


class StateClasses:
    """The classes that a state may contain: classes that these modules define or import.

    stand_ins: whether a dataclass that the modules do not know is read as an object that has only
        its fields.
    """

    def __init__(self, *modules: str, stand_ins: bool = False) -> None:
        self._modules = [sys.modules[one] for one in dict.fromkeys(modules) if one in sys.modules]
        self._stand_ins = stand_ins

    def knows(self, kind: type) -> bool:
        """Whether the class is found by its name."""
        return any(_at(module, kind.__qualname__) is kind for module in self._modules)

    def find(self, name: object) -> Any:
        """What has this name. Raises ValueError."""
        for module in self._modules:
            if isinstance(name, str) and (found := _at(module, name)) is not None:
                return found
        raise ValueError(
            f"the environment's module has no {name!r}; define or import {name} in that module"
        )

    def dataclass(self, name: object, fields: Any) -> Any:
        """An object of the dataclass of this name. Raises ValueError."""
        try:
            kind = self.find(name)
        except ValueError:
            if not (self._stand_ins and isinstance(name, str) and isinstance(fields, dict)):
                raise
            # A class of that name, for the text of errors.
            return type(name, (SimpleNamespace,), {})(**fields)
        return _dataclass(kind, fields)


def state_to_json(state: Any, names: StateClasses, most_bytes: int) -> bytes:
    """The state as JSON. Raises NotKept if it can't be JSON, or exceeds `most_bytes`."""
    writing = _Writing(names, most_bytes)
    try:
        text = dumps(writing.value(state, "state", 0))
    except (CodecError, RuntimeError) as error:  # such as a dictionary that a thread changes
        raise NotKept(f"the state is not JSON: {error}") from None
    if len(text) > most_bytes:
        raise NotKept(
            f"the state has {len(text)} bytes, more than the limit of {most_bytes} "
            "bytes for a kept state"
        )
    return text


def state_from_json(text: bytes, names: StateClasses) -> Any:
    """The state that `state_to_json` wrote. Raises ValueError (CodecError is one)."""
    return _read(loads(text), names, 0)


class _Writing:
    def __init__(self, names: StateClasses, most_bytes: int) -> None:
        self._names = names
        self._most = most_bytes
        self._left = most_bytes  # each value takes a byte at least, a text as many as characters

    def value(self, value: Any, place: str, depth: int) -> Any:
        kind = type(value)
        self._left -= 1 + (len(value) if kind in (str, bytes) else 0)
        if self._left < 0:
            raise NotKept(
                f"the state has more than the limit of {self._most} bytes for a kept state"
            )
        if depth > _DEEPEST:
            raise NotKept(f"{place[:80]} is nested deeper than {_DEEPEST} levels")
        if kind in _PLAIN:
            return value
        if kind is float:
            if not math.isfinite(value):
                raise NotKept(f"{place} is {value}, which can't be written as JSON")
            return value
        if kind is bytes:
            return {"$bytes": base64.b64encode(value).decode()}
        if kind in _TEXTS:
            return {_TEXTS[kind]: _text_of(value, _TEXTS[kind], place)}
        if kind is list:
            return self._items(value, place, depth)
        if kind in _LISTS:
            return {_LISTS[kind]: self._items(value, place, depth)}
        if kind in _PAIRS or kind is defaultdict:
            return self._mapping(value, kind, place, depth)
        if isinstance(value, Enum) and self._names.knows(kind):
            return {"$enum": f"{kind.__qualname__}.{value.name}"}
        if dataclasses.is_dataclass(kind):
            return self._dataclass(value, place, depth)
        raise NotKept(f"{place} is a {kind.__qualname__}, which can't be written as JSON")

    def _items(self, values: Iterable[Any], place: str, depth: int) -> list[Any]:
        return [
            self.value(one, f"{place}[{number}]", depth + 1) for number, one in enumerate(values)
        ]

    def _mapping(self, value: Any, kind: type, place: str, depth: int) -> Any:
        texts = kind is dict and all(type(key) is str and key[:1] != "$" for key in value)
        if texts:
            return {key: self._member(value[key], key, place, depth) for key in value}
        pairs = [
            [self.value(key, f"a key of {place}", depth + 1), self._member(one, key, place, depth)]
            for key, one in value.items()
        ]
        if kind is not defaultdict:
            return {_PAIRS[kind]: pairs}
        factory = getattr(value.default_factory, "__name__", "")
        if _FACTORIES.get(factory) is not value.default_factory:
            raise NotKept(
                f"{place} is a defaultdict of {factory or 'nothing'}; only a "
                "defaultdict of int, float, str, list, dict or set is kept"
            )
        return {"$defaultdict": pairs, "of": factory}

    def _member(self, value: Any, key: Any, place: str, depth: int) -> Any:
        self._left -= len(key) if type(key) is str else 0
        return self.value(value, f"{place}[{key!r}]", depth + 1)

    def _dataclass(self, value: Any, place: str, depth: int) -> Any:
        kind = type(value)
        fields = [one.name for one in dataclasses.fields(value)]
        if not self._names.knows(kind):
            raise NotKept(
                f"{place} is a {kind.__qualname__}, and the environment's module does not define "
                "or import this class. Define or import the class in that module"
            )
        if more := sorted(getattr(value, "__dict__", {}).keys() - set(fields)):
            raise NotKept(
                f"{place}.{more[0]} is an attribute, but not a field of the dataclass "
                f"{kind.__qualname__}. Declare the field in the class"
            )
        return {
            "$dataclass": kind.__qualname__,
            "fields": {
                name: self.value(getattr(value, name), f"{place}.{name}", depth + 1)
                for name in fields
                if hasattr(value, name)
            },
        }


def _text_of(value: Any, tag: str, place: str) -> str:
    """The text of a value of `_TEXTS`. Raises NotKept if it does not give the value back."""
    if isinstance(value, timedelta):
        text = f"{value.days} {value.seconds} {value.microseconds}"
    else:
        text = value.isoformat() if isinstance(value, date | time) else str(value)
    # Such as a time zone with a name: a text has only its offset.
    if repr(_OF_TEXT[tag](text)) != repr(value):
        raise NotKept(f"{place} is {value!r}, which can't be read back from a text")
    return text


def _read(value: Any, names: StateClasses, depth: int) -> Any:
    if depth > 3 * _DEEPEST:
        raise ValueError("the state is nested too deeply")
    if isinstance(value, list):
        return [_read(one, names, depth + 1) for one in value]
    if not isinstance(value, dict):
        return value
    tag = next((key for key in value if key[:1] == "$"), "")
    if not tag:
        return {key: _read(one, names, depth + 1) for key, one in value.items()}
    held = value[tag]
    if tag == "$bytes":
        return base64.b64decode(str(held), validate=True)
    if tag in _OF_TEXT:
        return _of_text(tag, str(held))
    if tag == "$enum":
        name, _, member = str(held).rpartition(".")
        kind = names.find(name)
        if isinstance(kind, type) and issubclass(kind, Enum) and member in kind.__members__:
            return kind[member]
        raise ValueError(f"{held} is not a member of an enum of the environment's module")
    if tag == "$dataclass":
        return names.dataclass(held, _read(value.get("fields"), names, depth + 1))
    content = _read(held, names, depth + 1)
    if tag == "$defaultdict" and value.get("of") in _FACTORIES:
        return defaultdict(_FACTORIES[value["of"]], content)
    if tag not in _MAKES:
        raise ValueError(f"the key {tag} is unknown")
    try:
        return _MAKES[tag](content)
    except TypeError as error:
        raise ValueError(f"{tag}: {error}") from None


def _of_text(tag: str, text: str) -> Any:
    """The value that `_text_of` wrote. Raises ValueError."""
    try:
        return _OF_TEXT[tag](text)
    except (ArithmeticError, TypeError) as error:  # a Decimal's errors are arithmetic ones
        raise ValueError(f"{tag}: {text[:80]!r} is not such a value: {error}") from None


def _dataclass(kind: Any, fields: Any) -> Any:
    """A dataclass with these fields, without a call of its `__init__`."""
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise ValueError(f"{kind!r} is not a dataclass")
    known = {one.name for one in dataclasses.fields(kind)}
    if not isinstance(fields, dict) or not known.issuperset(fields):
        raise ValueError(
            f"the fields of the stored state are not the fields of {kind.__qualname__}"
        )
    made: Any = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    for one in dataclasses.fields(kind):  # that the class did not have yet
        if one.name not in fields:
            if one.default is not dataclasses.MISSING:
                object.__setattr__(made, one.name, one.default)
            elif one.default_factory is not dataclasses.MISSING:
                object.__setattr__(made, one.name, one.default_factory())
    return made


def _at(module: ModuleType, name: str) -> Any:
    """What a module has under a dotted name; None: nothing."""
    found: Any = module
    for part in name.split("."):
        if not isinstance(found, ModuleType | type):
            return None
        found = vars(found).get(part)
    return found
