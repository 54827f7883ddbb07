"""What an answer denotes: a number or expression, a collection, a region, a statement, or words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from gymmesh_resource.environments.math.answers.nodes import Node
from gymmesh_resource.environments.math.answers.units import Unit

Kind = Literal["set", "list", "tuple", "matrix", "ratio"]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number or an expression; `unit` where one is written behind it."""

    node: Node
    unit: Unit | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """Several forms. `brackets`: a tuple's, such as "()"; a matrix has its rows as tuples."""

    kind: Kind
    members: tuple[Form, ...]
    brackets: str = ""


@dataclass(frozen=True, slots=True)
class RegionPart:
    """An interval of the real line; a point where both ends are one."""

    low: Node
    high: Node
    low_closed: bool
    high_closed: bool


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the real line: the union of its pieces. `name`: of the variable, if any."""

    pieces: tuple[RegionPart, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Assigned:
    """A name with its value: ``x = 5``, ``f(x) = x^2``. `left`: the name as an expression."""

    name: str
    value: Form
    left: Node | None = None


@dataclass(frozen=True, slots=True)
class Relation:
    """An equation or inequality that gives no name a value: ``x + y < 3``."""

    sign: Literal["=", "<", "<="]
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Chain:
    """Forms of one value, as ``40 + 2 = 42`` has them; each of its links was found true."""

    members: tuple[Form, ...]


@dataclass(frozen=True, slots=True)
class OneSidedRelation:
    r"""A relation that lacks a side (``\\le 72``): no value, and compared as it is written."""

    text: str


@dataclass(frozen=True, slots=True)
class Words:
    """Text that is compared as text: a word, a name, a date, a time of day."""

    text: str


Form: TypeAlias = (
    Scalar | Collection | Region | Assigned | Relation | Chain | OneSidedRelation | Words
)


def shown(form: Form) -> str:
    """A form as one line, for evidence."""
    match form:
        case Scalar(node, unit):
            return shown_node(node) + ("" if unit is None else f" [{_shown_unit(unit)}]")
        case Collection(kind, members, _):
            return f"{kind}({', '.join(map(shown, members))})"
        case Region(pieces, _):
            return " or ".join(map(_shown_piece, pieces)) or "nothing"
        case Assigned(name, value, _):
            return f"{name} = {shown(value)}"
        case Relation(sign, left, right):
            return f"{shown_node(left)} {sign} {shown_node(right)}"
        case Chain(members):
            return " = ".join(map(shown, members))
        case OneSidedRelation(text):
            return text
        case Words(text):
            return repr(text)


_INFIX = {"add": " + ", "sub": " - ", "mul": "*", "times": "*", "frac": "/", "pow": "^"}


def shown_node(node: Node) -> str:
    """An expression as text with its operations' signs or names."""
    if not node.args:
        return node.name
    parts = [shown_node(part) for part in node.args]
    if node.op in _INFIX:
        return "(" + _INFIX[node.op].join(parts) + ")"
    if node.op == "neg":
        return f"-{parts[0]}"
    return f"{node.name or node.op}({', '.join(parts)})"


def _shown_unit(unit: Unit) -> str:
    names = " ".join(
        name if power == 1 else f"{name}^{power}" for name, power in sorted(unit.powers)
    )
    return names if unit.scale == 1 else f"{unit.scale} {names}"


def _shown_piece(piece: RegionPart) -> str:
    left, right = "[" if piece.low_closed else "(", "]" if piece.high_closed else ")"
    return f"{left}{shown_node(piece.low)}, {shown_node(piece.high)}{right}"
