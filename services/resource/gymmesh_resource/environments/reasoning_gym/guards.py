"""Keeps the library's scorers from executing what a model wrote.

Some scorers of reasoning-gym 0.1 give an answer to `eval` or to SymPy's `parse_expr`, which
evaluates Python too. An answer could thereby read files, or change the scorer that judges it.
`install` puts in their places two functions that read data and arithmetic only.

Invariant: no text of an answer reaches the interpreter, except expressions made of numbers,
operators, plain symbols and elementary functions.
"""

from __future__ import annotations

import ast
import importlib
import re
from itertools import accumulate
from typing import Any

# Modules whose scorers call `eval` on the answer, and those that call `parse_expr` by its name.
_EVAL_MODULES = (
    "algorithmic.binary_matrix",
    "algorithmic.number_sorting",
    "algorithmic.spiral_matrix",
    "algorithmic.string_insertion",
    "games.n_queens",
)
_PARSE_MODULES = ("games.countdown", "games.puzzle24")
# This one evaluates the problem, which a task row brings along.
_BITS_MODULE = "arithmetic.bitwise_arithmetic"
_BITS = re.compile(r"[0-9a-fA-FxX\s()+*<>&|^~-]*")

_LENGTH = 20_000
_NESTING = 100
_NAME = re.compile(r"[^\W\d]\w*")
# A letter with an index, such as x_1 or x1.
_SYMBOL = re.compile(r"[A-Za-z]_?[0-9]{1,3}")
_CHARACTERS = re.compile(r"[\w\s+\-*/^%().,!]*")
# A dot may only be a decimal point: with a digit beside it, and no letter after it.
_ATTRIBUTE = re.compile(r"\.\s*[^\W\d]|(?<![0-9])\.(?![0-9])|[\w)]\s+\.")
_FUNCTIONS = """
    Abs abs sqrt cbrt root exp log ln sin cos tan cot sec csc asin acos atan acot asec acsc
    sinh cosh tanh coth asinh acosh atanh arcsin arccos arctan sech csch erf erfi Si Ci Ei Rational
    Integer Float pi oo gamma sign atan2 li Li fresnels fresnelc
    alpha beta theta lambda_ mu nu xi rho sigma tau phi chi psi omega
"""
_KNOWN = frozenset(_FUNCTIONS.split())


class UnsafeExpression(ValueError):
    """An answer that is no plain arithmetic."""


def install() -> None:
    """Replace `eval` and `parse_expr` where the library's scorers use them; once per process."""
    import sympy

    parse = sympy.parse_expr

    def guarded(text: Any, *args: Any, **named: Any) -> Any:
        if isinstance(text, str):
            check_expression(text)
        return parse(text, *args, **named)

    # The algebra modules look it up on SymPy's own package.
    sympy.parse_expr = guarded
    for name in _EVAL_MODULES:
        # A module's own name comes before the builtin's.
        importlib.import_module(f"reasoning_gym.{name}").eval = _literal  # type: ignore[attr-defined]
    importlib.import_module(f"reasoning_gym.{_BITS_MODULE}").eval = _bits  # type: ignore[attr-defined]
    for name in _PARSE_MODULES:
        importlib.import_module(f"reasoning_gym.{name}").parse_expr = guarded  # type: ignore[attr-defined]


def check_expression(text: str) -> None:
    """Raise `UnsafeExpression` unless the text is plain arithmetic."""
    if len(text) > _LENGTH or not _CHARACTERS.fullmatch(text):
        raise UnsafeExpression("the answer is not an arithmetic expression")
    depths = accumulate((character == "(") - (character == ")") for character in text)
    if max(depths, default=0) > _NESTING:
        raise UnsafeExpression("the answer is nested too deeply")
    if _ATTRIBUTE.search(text):
        raise UnsafeExpression("the answer has a dot that is not a decimal point")
    for name in _NAME.findall(text):
        # Single letters are symbols; SymPy's E, I, N, O, Q and S do no harm.
        if len(name) > 1 and name not in _KNOWN and not _SYMBOL.fullmatch(name):
            raise UnsafeExpression(f"the answer calls {name[:40]!r}, which is not supported")


def _bits(text: str, *_: Any) -> Any:
    """The value of whole numbers joined by bitwise and arithmetic operators."""
    if len(text) > _LENGTH or not _BITS.fullmatch(text):
        raise UnsafeExpression("the problem is not arithmetic on whole numbers")
    return eval(text, {"__builtins__": {}})  # noqa: S307  # digits and operators alone


def _literal(text: Any, *_: Any) -> Any:
    """Python data written out, such as a list of characters; nothing is executed."""
    if len(text) > _LENGTH:
        raise UnsafeExpression("the answer is too long to be read as a list")
    return ast.literal_eval(text.strip())
