"""The tree of a mathematical expression. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction


class Unreadable(ValueError):
    """This reader cannot read the text; the message says what stopped it."""


@dataclass(frozen=True, slots=True)
class Node:
    """An operation on its arguments, or a leaf.

    op: "number", "symbol", "constant", or the operation's name ("add", "frac", "sin", …).
    name: a leaf's name; a number's text.
    value: a number's exact value. place: for a decimal, the value of its last written place;
    None for a whole number, which is exact.
    """

    op: str
    args: tuple[Node, ...] = ()
    name: str = ""
    value: Fraction = Fraction(0)
    place: Fraction | None = None


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting.extend(one.args)
