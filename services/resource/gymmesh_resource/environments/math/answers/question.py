r"""Detects answers that only repeat the question: not computed, or copied from the prompt. Pure.

Fractions, roots, powers, percentages and scientific notation are values. A product or sum of
numbers, a factorial, a binomial coefficient, a sum, a maximum and the like are left to be
computed, and so is an expression that the prompt itself has.
"""

from __future__ import annotations

import re

from gymmesh_resource.environments.math.answers.evaluation import exact
from gymmesh_resource.environments.math.answers.forms import (
    Assigned,
    Chain,
    Collection,
    Form,
    Scalar,
)
from gymmesh_resource.environments.math.answers.nodes import Node, walk
from gymmesh_resource.environments.math.answers.notation import clean

_TO_COMPUTE = {
    "factorial", "double_factorial", "binom", "sum", "prod", "max", "min", "gcd", "lcm",
    "floor", "ceil", "abs", "gamma",
}  # fmt: skip
# Commands of what the reader of expressions leaves to a library.
_COMMANDS = re.compile(
    r"\\(?:int|iint|oint|lim|sum|prod|binom|max|min|sup|inf|gcd|det|mod|pmod)(?![a-zA-Z])"
    r"|\\frac\s?\{\s?d[^{}]*\}\s?\{\s?d"
)
_ARITHMETIC = {"add": "+", "sub": "-", "times": "*", "mul": "", "frac": "/", "pow": "^"}
_FRACTION = re.compile(r"\\frac\s?\{([^{}]*)\}\s?\{([^{}]*)\}")
_PROMPT_SIGNS = (
    ("\\times", "*"), ("\\cdot", "*"), ("\\left", ""), ("\\right", ""), ("**", "^"),
    ("percent", "%"),
)  # fmt: skip
_REMOVED = re.compile(r"[\s{}()$\\]")
_DECIMAL = re.compile(r"\d*\.?\d*")
_LONGEST_PROMPT = 20_000


def wants_value(expected: Form) -> bool:
    """Whether the expected answer is a whole number or a decimal."""
    match expected:
        case Assigned(_, value, _):
            return wants_value(value)
        case Scalar(node, _):
            return _bare(node).op == "number"
    return False


def values_of(answer: Form, prompt: str) -> Form | None:
    """The answer without the parts of a chain that are left to be computed; None without any."""
    match answer:
        case Scalar(node, _):
            return None if left_to_compute(node) or _is_asked(node, prompt) else answer
        case Assigned(name, value, left):
            kept = values_of(value, prompt)
            return None if kept is None else Assigned(name, kept, left)
        case Chain(members):
            parts = [part for one in members if (part := values_of(one, prompt)) is not None]
            return Chain(tuple(parts)) if parts else None
        case Collection(kind, members, brackets) if len(members) == 1:
            kept = values_of(members[0], prompt)
            return None if kept is None else Collection(kind, (kept,), brackets)
    return answer


def left_to_compute(node: Node) -> bool:
    """Whether a part of the expression is arithmetic that nobody has carried out."""
    return any(
        (one.op in _TO_COMPUTE and not _is_whole_by_itself(one))
        or (
            one.op in ("add", "sub", "times", "mul")
            and all(map(_is_literal, one.args))
            and not _is_scientific(one)
        )
        for one in walk(node)
    )


def _is_whole_by_itself(node: Node) -> bool:
    """Whether nothing is left to compute: the value of a whole number that is not negative."""
    return node.op in ("abs", "floor", "ceil") and (
        node.args[0].op == "number" and node.args[0].value.denominator == 1
    )


def has_commands_to_compute(text: str) -> bool:
    """Whether a text that could not be read has an integral, a limit or the like."""
    return _COMMANDS.search(text) is not None


def _is_literal(node: Node) -> bool:
    """A number as it is written, or made of numbers by signs that compute nothing."""
    if node.op in ("neg", "frac", "percent", "mixed", "add", "sub", "times", "mul"):
        return all(map(_is_literal, node.args))
    if node.op == "pow":
        base, exponent = node.args
        trivial = base.value in (0, 1) or exponent.value in (0, 1)
        return trivial and base.op == exponent.op == "number"
    return node.op == "number"


def _is_scientific(node: Node) -> bool:
    r"""``1.2\times10^3``, and ``1.2\times10``, but not ``12\times10``."""
    factor, power = node.args
    bare = _bare(factor)
    return (
        node.op in ("times", "mul")
        and bare.op == "number"
        and (power.op == "pow" or (power.op == "number" and bare.value.denominator != 1))
        and exact(power.args[0] if power.args else power) == 10
    )


def _bare(node: Node) -> Node:
    return node.args[0] if node.op == "neg" else node


def _is_asked(node: Node, prompt: str) -> bool:
    """Whether the expression stands in the prompt; a plain number may."""
    plain = _bare(node)
    if plain.op in ("symbol", "constant") or (
        plain.op == "number" and _DECIMAL.fullmatch(plain.name)
    ):
        return False
    written = re.escape(_written(node))
    return re.search(rf"(?<![\w.^]){written}(?![\w^]|\.\d)", _asked(prompt)) is not None


def _written(node: Node) -> str:
    """The expression as prompts have it once their brackets are removed."""
    if not node.args:
        return node.name
    parts = list(map(_written, node.args))
    if node.op in _ARITHMETIC:
        return _ARITHMETIC[node.op].join(parts)
    match node.op:
        case "neg":
            return "-" + parts[0]
        case "percent":
            return parts[0] + "%"
        case "factorial":
            return parts[0] + "!"
        case "mixed":
            return "".join(parts)
    return node.op + ",".join(parts)


def _asked(prompt: str) -> str:
    text = clean(prompt[:_LONGEST_PROMPT])
    for _ in range(4):
        text = _FRACTION.sub(r"\1/\2", text)
    for sign, plain in _PROMPT_SIGNS:
        text = text.replace(sign, plain)
    # Words keep their distance from what stands beside them.
    text = re.sub(r"(?<![\\a-zA-Z])([a-zA-Z]{2,})(?![a-zA-Z])(?!\s?\()", r" |\1| ", text)
    return _REMOVED.sub("", text)
