"""Variants of a right answer, by its kind. One file per kind, each pure and plain data.

Each has `nearly`: wrong answers that look right, and `clothes`: the same answer in other usual
forms. Both accept a Gold and return Variants. An author adds a kind's generator to `GENERATORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gymmesh_audit.answers import calls, choice, code, json_value, number, sql, text
from gymmesh_audit.answers.pattern import AS_PATTERN
from gymmesh_audit.answers.text import is_identifier
from gymmesh_audit.answers.variant import Variant
from gymmesh_audit.gold import Gold, GoldKind

Make = Callable[[Gold], Iterator[Variant]]


@dataclass(frozen=True, slots=True)
class Generator:
    """The two ways to change an answer of one kind."""

    nearly: Make
    clothes: Make


GENERATORS: Final[Mapping[GoldKind, Generator]] = {
    "text": Generator(text.nearly, text.clothes),
    "number": Generator(number.nearly, number.clothes),
    "choice": Generator(choice.nearly, choice.clothes),
    "json": Generator(json_value.nearly, json_value.clothes),
    "sql": Generator(sql.nearly, sql.clothes),
    "calls": Generator(calls.nearly, calls.clothes),
    "code": Generator(code.nearly, code.clothes),
}

__all__ = [
    "AS_PATTERN",
    "GENERATORS",
    "Generator",
    "Variant",
    "is_identifier",
]
