"""Adds the valid choices to msgspec's error for an invalid choice."""

from __future__ import annotations

import enum
import re
import typing
from collections.abc import Sequence
from types import UnionType
from typing import Any, Final

import msgspec

from gymmesh_runtime.config.errors import nearest

_PLACE: Final = re.compile(r"^(?P<problem>.*?)(?: - at `\$\.?(?P<place>.*)`)?$", re.DOTALL)
_PART: Final = re.compile(r"\[[^\]]*\]|[^.\[\]]+")
_FEW: Final = 12
_NOT_ONE: Final = re.compile(r"^Invalid enum value (?P<given>.*)$", re.DOTALL)


def explained(error: msgspec.ValidationError, kind: type[msgspec.Struct]) -> tuple[str, str]:
    """The place and the problem of an error. The place is a path in a struct, such as
    `checks[0].run`; it is empty for the whole struct. For an invalid choice, the problem lists the
    valid values, or names the nearest.
    """
    found = _PLACE.match(str(error))
    assert found is not None  # it matches any text
    place, problem = found["place"] or "", found["problem"]
    wrong = _NOT_ONE.match(problem)
    if wrong is not None:
        given = wrong["given"].strip("'\"")
        hint = _hint_at(kind, place)
        if choices := _choices(hint):
            valid = f"valid here: {', '.join(sorted(choices))}"
            valid = valid if len(choices) <= _FEW else nearest(given, choices)
            problem = f"{problem}; {valid}{' or a list' if _admits_list(hint) else ''}"
    return place, problem


def _hint_at(kind: Any, place: str) -> Any:
    """The type of the value at a place; None where the place leads nowhere known."""
    for part in _PART.findall(place):
        kind = _base(kind)
        if part.startswith("["):
            kind = next((one for one in typing.get_args(kind)[::-1] if one is not ...), None)
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            fields = {one.encode_name: one.type for one in msgspec.structs.fields(kind)}
            kind = fields.get(part)
        else:
            return None
    return kind


def _base(hint: Any) -> Any:
    while typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    return hint


def _choices(hint: Any) -> Sequence[str]:
    """The values that a type allows by name."""
    hint = _base(hint)
    if typing.get_origin(hint) is typing.Literal:
        return [str(one) for one in typing.get_args(hint)]
    if typing.get_origin(hint) in (typing.Union, UnionType):
        return [name for one in typing.get_args(hint) for name in _choices(one)]
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return [str(one.value) for one in hint]
    return ()


def _admits_list(hint: Any) -> bool:
    alternatives = typing.get_args(_base(hint))
    return any(_base(one) is list or typing.get_origin(_base(one)) is list for one in alternatives)
