r"""Whether each operator of a LaTeX text has its operands: ``\cup 72`` is not a value. Pure.

math-verify drops an operator that it cannot place and compares what is left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|\S")
# What stands between two operands, and what stands before one, perhaps behind another.
_BETWEEN: Final = frozenset((
    "*", "/", "=", "<", ">", *(f"\\{name}" for name in (
        "times", "cdot", "cup", "cap", "setminus", "circ", "mod", "bmod", "in", "subset", "mid",
        "le", "leq", "ge", "geq", "ne", "neq", "equiv", "to",
    )),
))  # fmt: skip
_BEFORE: Final = frozenset(("+", "-", "\\pm", "\\mp", "\\partial", "\\nabla"))
_OPENS: Final = frozenset(("(", "[", "{", "\\{", "\\langle", "\\lfloor", "\\lceil"))
_CLOSES: Final = frozenset((")", "]", "}", "\\}", "\\rangle", "\\rfloor", "\\rceil"))
_APART: Final = frozenset((",", ";", "&", "\\row"))
_SCRIPTS: Final = frozenset(("^", "_"))

_NO_LEFT: Final = _OPENS | _APART | _BETWEEN | _BEFORE | _SCRIPTS
_NO_RIGHT: Final = _CLOSES | _APART | _BETWEEN


def has_operands(text: str) -> bool:
    """Whether no operator lacks a side, in cleaned LaTeX."""
    tokens = ["{", *_TOKEN.findall(text), "}"]
    return not any(
        _lacks_a_side(tokens, at)
        for at, token in enumerate(tokens)
        if token in _BETWEEN or token in _BEFORE
    )


def _lacks_a_side(tokens: Sequence[str], at: int) -> bool:
    if _is_script(tokens, at):
        return False
    left = tokens[at] in _BETWEEN and tokens[at - 1] in _NO_LEFT
    return left or tokens[at + 1] in _NO_RIGHT


def _is_script(tokens: Sequence[str], at: int) -> bool:
    r"""Whether it is a mark above or below: ``z^*``, ``90^{\circ}``, ``0^{+}``."""
    before = tokens[at - 1]
    held = before == "{" and tokens[at + 1] == "}" and at > 1 and tokens[at - 2] in _SCRIPTS
    return before in _SCRIPTS or held
