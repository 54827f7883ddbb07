"""The arguments of instructions, as task rows give them.

Invariant: a check is only ever called with arguments of its types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["AT_LEAST", "LESS_THAN", "ArgumentError", "ArgumentKind", "count", "letter", "read",
           "relation", "text", "texts", "word"]  # fmt: skip

LESS_THAN: Final = "less than"
AT_LEAST: Final = "at least"


class ArgumentError(ValueError):
    """A task's argument that is missing or of no use; `name` is the argument's."""

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        self.problem = problem
        super().__init__(f"{name} {problem}")


class ArgumentKind:
    """What an argument may be; reading gives its value, or raises ValueError with a clause."""

    def read(self, value: Any) -> Any:
        raise NotImplementedError


class _Count(ArgumentKind):
    def read(self, value: Any) -> int:
        # Tables with gaps keep whole numbers as floats.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError("must be a whole number that is not negative")
        return value


class _Text(ArgumentKind):
    def read(self, value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise ValueError("must be text")
        return value


class _Word(ArgumentKind):
    """One word or phrase; some rows wrap it in a list."""

    def read(self, value: Any) -> str:
        if isinstance(value, list) and value:
            value = value[0]
        return _Text().read(value).strip()


class _Texts(ArgumentKind):
    def read(self, value: Any) -> list[str]:
        if not isinstance(value, list) or not value:
            raise ValueError("must be a list of texts")
        return [_Text().read(entry) for entry in value]


class _Letter(ArgumentKind):
    def read(self, value: Any) -> str:
        if not isinstance(value, str) or len(value.strip()) != 1:
            raise ValueError("must be one letter")
        return value.strip().lower()


class _Relation(ArgumentKind):
    def read(self, value: Any) -> str:
        if value not in (LESS_THAN, AT_LEAST):
            raise ValueError(f"must be {LESS_THAN!r} or {AT_LEAST!r}")
        return str(value)


count: Final = _Count()
text: Final = _Text()
word: Final = _Word()
texts: Final = _Texts()
letter: Final = _Letter()
relation: Final = _Relation()


def read(kinds: Mapping[str, ArgumentKind], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values by name; raises `ArgumentError`. Arguments that no kind is for are left out."""
    values: dict[str, Any] = {}
    for name, kind in kinds.items():
        if given.get(name) is None:
            raise ArgumentError(name, "is missing")
        try:
            values[name] = kind.read(given[name])
        except ValueError as error:
            raise ArgumentError(name, str(error)) from None
    return values
