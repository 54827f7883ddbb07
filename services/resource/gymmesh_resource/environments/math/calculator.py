"""A pocket calculator for language models: exact where it can be, bounded always.

Invariant: `evaluate` returns a number as text or raises `CalculatorError`, nothing else,
within a few milliseconds whatever the input. Three fences make it so: the notation lets only
arithmetic through (`calculator_notation`), the evaluator knows six kinds of syntax nodes, and
every intermediate value is held to `MAX_BITS`.

Numbers are fractions until a function without exact results (a sine, a root that is not a
whole one) makes a float of them, so 0.1 + 0.2 is 0.3 and 2 ^ 100 has all of its digits.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import simpleeval

from gymmesh_resource.environments.math.calculator_functions import (
    FUNCTIONS,
    NAMES,
    Number,
    bounded,
    power,
)
from gymmesh_resource.environments.math.calculator_notation import CalculatorError, to_python

__all__ = ["MAX_DEPTH", "CalculatorError", "evaluate"]

# The evaluator recurses twice per level: 150 levels stay far below Python's default limit of
# 1000 frames, also when called from deep inside an event loop.
MAX_DEPTH = 150
# A float carries 15 decimal digits that are right; more would show rounding noise.
SIGNIFICANT_DIGITS = 15
# Fractions that end are shown in full up to here (2 ^ -20 has 14 digits, 2 ^ -200 has 140).
MAX_EXACT_DIGITS = 30

_OPERATORS: dict[type[ast.AST], Callable[..., Number]] = {
    ast.Add: bounded(operator.add),
    ast.Sub: bounded(operator.sub),
    ast.Mult: bounded(operator.mul),
    ast.Div: bounded(operator.truediv),
    ast.FloorDiv: bounded(operator.floordiv),
    ast.Mod: bounded(operator.mod),
    ast.Pow: bounded(power),
    ast.USub: bounded(operator.neg),
    ast.UAdd: bounded(operator.pos),
}


def _whole_number(node: ast.Constant) -> Fraction:
    if type(node.value) is not int:
        raise CalculatorError("The calculator accepts only numbers.")
    return Fraction(node.value)


# Cut down to arithmetic on fractions and floats.
_EVALUATOR = simpleeval.SimpleEval(operators=_OPERATORS, functions=FUNCTIONS, names=NAMES)
_KEPT = (ast.Expr, ast.Name, ast.UnaryOp, ast.BinOp, ast.Call)
_EVALUATOR.nodes = {kind: _EVALUATOR.nodes[kind] for kind in _KEPT} | {ast.Constant: _whole_number}


def evaluate(expression: str) -> str:
    """The value of an arithmetic expression, as decimal text.

    Operators: ``+ - * / // ^ **`` and parentheses; ``× · ÷ −`` are read as ``* * / -``.
    ``^`` is power, as ``**`` is, and binds like it: -2 ^ 2 is -4, 2 ^ 3 ^ 2 is 2 ^ 9.
    ``%`` after a number is a percentage (``50%`` is 0.5, ``20% of 80`` is 16), unless an
    operand follows: ``17 % 5`` is the remainder, with the sign of the divisor. ``5!`` is a
    factorial. ``1,234`` is a number except among the arguments of a function, where each comma
    separates. Constants: pi, e. Functions: see `calculator_functions`; angles are in radians,
    ``log`` is natural (``log(x, base)`` for another), ``round`` takes halves away from zero.

    Whole numbers and decimals that end within 30 digits are exact; everything else is rounded
    to 15 significant digits. Raises `CalculatorError`, whose text is one sentence that tells a
    model what to change; never anything else.
    """
    try:
        source = to_python(expression)
        tree = _parse(source)
        return _show(_EVALUATOR.eval(source, previously_parsed=tree))
    except CalculatorError:
        raise
    except ZeroDivisionError:
        raise CalculatorError("Division by zero has no value.") from None
    except simpleeval.NameNotDefined as error:
        raise CalculatorError(_unknown(error.name, "name")) from None
    except simpleeval.FunctionNotDefined as error:
        raise CalculatorError(_unknown(error.func_name, "function")) from None
    except simpleeval.InvalidExpression:
        raise CalculatorError("The calculator accepts only arithmetic with numbers.") from None
    except OverflowError:
        raise CalculatorError("The result is too large for this calculator.") from None
    except RecursionError:
        raise CalculatorError(_TOO_DEEP) from None
    except (ValueError, ArithmeticError, MemoryError):
        raise CalculatorError(
            "A function got a value for which the function is not defined."
        ) from None
    except TypeError:
        raise CalculatorError("A function got a wrong number of arguments.") from None


_TOO_DEEP = f"The expression has more than {MAX_DEPTH} levels: calculate it in smaller parts."


def _unknown(name: str, kind: str) -> str:
    return (
        f"Unknown {kind} {name[:40]!r}: the names are {', '.join(NAMES)} and the functions are "
        f"{', '.join(FUNCTIONS)}."
    )


def _parse(source: str) -> ast.stmt:
    """The syntax tree of one expression, held to `MAX_DEPTH` levels."""
    try:
        tree = ast.parse(source, mode="exec").body
    except (SyntaxError, ValueError):
        raise CalculatorError(
            "The expression is not complete arithmetic: check operators and parentheses."
        ) from None
    level: list[ast.AST] = list(tree)
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return tree[0]
    raise CalculatorError(_TOO_DEEP)


def _show(value: Any) -> str:
    """A number as the shortest text that keeps its digits."""
    if isinstance(value, float):
        return _rounded(Decimal(value)) if value else "0"
    exact = Fraction(value)
    if exact.denominator == 1:
        return str(exact.numerator)
    if digits := _terminating(exact):
        return digits
    # Emin is far below any value of MAX_BITS, so nothing underflows to zero here.
    context = Context(prec=SIGNIFICANT_DIGITS, Emin=-99999, Emax=99999)
    return _rounded(context.divide(Decimal(exact.numerator), Decimal(exact.denominator)))


def _terminating(value: Fraction) -> str | None:
    """All digits of a fraction whose decimals end soon, else None."""
    rest, places = value.denominator, 0
    while math.gcd(rest, 10) != 1 and places <= MAX_EXACT_DIGITS:
        rest //= math.gcd(rest, 10)
        places += 1
    if rest != 1 or places > MAX_EXACT_DIGITS:
        return None
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' * (value < 0)}{digits[:-places]}.{digits[-places:]}"


def _rounded(value: Decimal) -> str:
    rounded = Context(prec=SIGNIFICANT_DIGITS).plus(value).normalize()
    return format(rounded, "f" if -7 <= rounded.adjusted() < SIGNIFICANT_DIGITS else "e")
