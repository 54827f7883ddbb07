"""Expressions that have to make a number of given ones. Pure."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

from gymmesh_resource.environments.reasoning_gym.corrections.scorer import Scorer

# The most that the library gives for an expression in a game of numbers that misses.
_TRIED: Final = 0.05
_LONGEST: Final = 500
_SIGNS: Final = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-"})
_OPERATORS: Final[dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def puzzle24(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer asks for four numbers, not for those given, and cuts 24.5 down to 24."""
    return float(_makes(answer, 24, entry))


def countdown(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer takes a value that is off by a part in 100,000."""
    if _makes(answer, entry["metadata"]["target"], entry):
        return 1.0
    return min(_TRIED, float(scorer(answer=answer, entry=entry)))


def arithmetic(text: str) -> tuple[Fraction, list[int]]:
    """The exact value of an expression of whole numbers and `+ - * /`, and its numbers.

    Raises ValueError, SyntaxError, ZeroDivisionError or RecursionError for anything else.
    """
    if len(text) > _LONGEST:
        raise ValueError("too long")
    if "#" in text:  # what stands behind it, such as another guess, is not read
        raise ValueError("a comment")
    numbers: list[int] = []

    def value(node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                numbers.append(number)
                return Fraction(number)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
        raise ValueError("not plain arithmetic")

    return value(ast.parse(text.translate(_SIGNS).strip(), mode="eval").body), numbers


def _makes(answer: str, target: int, entry: dict[str, Any]) -> bool:
    """Whether an expression makes the target of the entry's numbers, each used once."""
    try:
        value, numbers = arithmetic(answer)
    except (ValueError, SyntaxError, ZeroDivisionError, RecursionError):
        return False
    return value == target and sorted(numbers) == sorted(entry["metadata"]["numbers"])
