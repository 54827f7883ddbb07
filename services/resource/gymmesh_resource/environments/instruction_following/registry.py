"""The registry of instruction checks, with the types of their arguments.

Invariant: a check is called only with arguments of its types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

LESS_THAN: Final = "less than"
AT_LEAST: Final = "at least"


class ArgumentError(ValueError):
    """A task's argument that is missing or invalid; `name` is the argument's name."""

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        self.problem = problem
        super().__init__(f"{name} {problem}")


ArgumentKind: TypeAlias = Callable[[Any], Any]
"""What an argument may be: gives its value, or raises ValueError with a clause."""


def count(value: Any) -> int:
    """A whole number that is not negative."""
    # Tables with gaps keep whole numbers as floats.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("must be a whole number that is not negative")
    return value


def text(value: Any) -> str:
    """A text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be text")
    return value


def word(value: Any) -> str:
    """One word or phrase; some rows wrap it in a list."""
    return text(value[0] if isinstance(value, list) and value else value).strip()


def texts(value: Any) -> list[str]:
    """A list of texts that are not blank."""
    if not isinstance(value, list) or not value:
        raise ValueError("must be a list of texts")
    return [text(entry) for entry in value]


def letter(value: Any) -> str:
    """One letter, in lower case."""
    if not isinstance(value, str) or len(value.strip()) != 1:
        raise ValueError("must be one letter")
    return value.strip().lower()


def relation(value: Any) -> str:
    """The relation of a number to a limit: less than, or at least."""
    if value not in (LESS_THAN, AT_LEAST):
        raise ValueError(f"must be {LESS_THAN!r} or {AT_LEAST!r}")
    return str(value)


def read(kinds: Mapping[str, ArgumentKind], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values by name. Arguments without a kind are ignored. Raises `ArgumentError`."""
    values: dict[str, Any] = {}
    for name, kind in kinds.items():
        if given.get(name) is None:
            raise ArgumentError(name, "is missing")
        try:
            values[name] = kind(given[name])
        except ValueError as error:
            raise ArgumentError(name, str(error)) from None
    return values


InstructionTable: TypeAlias = "dict[str, tuple[Callable[..., bool], dict[str, ArgumentKind]]]"

INSTRUCTIONS: Final[InstructionTable] = {}
"""Each instruction's check, and the kinds of its arguments."""

REFERENCE: Final[InstructionTable] = {}
"""The checks of IFEval itself, of the instructions that it judges in another way."""

Register: TypeAlias = Callable[[Callable[..., bool]], Callable[..., bool]]


def instruction(*ids: str, **kinds: ArgumentKind) -> Register:
    """Register a check under its ids, with the kinds of its arguments.

    The check takes the response's text and the arguments by name.
    """
    return _register(INSTRUCTIONS, ids, kinds)


def reference(*ids: str, **kinds: ArgumentKind) -> Register:
    """Register IFEval's own check under its ids, as `instruction` does."""
    return _register(REFERENCE, ids, kinds)


def _register(
    table: InstructionTable, ids: tuple[str, ...], kinds: dict[str, ArgumentKind]
) -> Register:
    def register(check: Callable[..., bool]) -> Callable[..., bool]:
        for name in ids:
            table[name] = (check, kinds)
        return check

    return register
