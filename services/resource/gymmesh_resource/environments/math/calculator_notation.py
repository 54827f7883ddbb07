"""How people and models write arithmetic, turned into what Python's parser reads.

Invariant: the text that leaves here has only whole numbers, names, ``+ - * / ** %``, commas
and round brackets, so no string, attribute, index, comparison or assignment can reach the
evaluator, whatever was asked for.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

# Characters; a longer expression is a program rather than a calculation.
MAX_LENGTH = 1000
# Powers of ten in scientific notation: about what a float can hold.
MAX_EXPONENT = 300

_SIGNS = str.maketrans(
    dict.fromkeys("×·⋅∙∗", "*")
    | dict.fromkeys("÷∕⁄", "/")
    | dict.fromkeys("\N{MINUS SIGN}\N{EN DASH}", "-")
    | dict.fromkeys("\n\r\t\u00a0\u2009\u202f", " ")
    | {"π": "pi", "²": "^2", "³": "^3"}
)

_NUMBER = re.compile(r"(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_TOKEN = re.compile(
    r"(?P<grouped>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])(?:\.[0-9]+)?)"
    rf"|(?P<number>{_NUMBER.pattern})"
    r"|(?P<name>[A-Za-z][A-Za-z0-9]*)"
    r"|(?P<mark>\*\*|//|[-+*/^%!(),])"
    r"|(?P<space> +)"
)


class CalculatorError(ValueError):
    """An expression without a value; the text is one sentence for its author."""


class _Token(NamedTuple):
    kind: str  # number, name, mark, or end
    text: str

    @property
    def starts_operand(self) -> bool:
        return self.kind in ("number", "name") or self.text == "("

    @property
    def ends_operand(self) -> bool:
        return self.kind in ("number", "name") or self.text == ")"


_EDGE = _Token("end", "")


def to_python(expression: str) -> str:
    """A calculator expression (the notation of `calculator.evaluate`) as Python source.

    Decimals become fractions of whole numbers, ``0.1`` is ``(1/10)``, so that nothing is lost
    to binary floating point. Raises `CalculatorError`.
    """
    if not isinstance(expression, str) or not expression.strip():
        raise CalculatorError("There is no expression to calculate.")
    if len(expression) > MAX_LENGTH:
        raise CalculatorError(
            f"The expression is longer than {MAX_LENGTH} characters: calculate it in parts."
        )
    return _write(_tokens(expression.translate(_SIGNS)))


def _tokens(text: str) -> list[_Token]:
    """The tokens of a text, its brackets balanced and the two kinds of commas separated."""
    tokens: list[_Token] = []
    calls: list[bool] = []  # for each open bracket: does it hold a function's arguments?
    position = 0
    while position < len(text):
        kind, token = _match(text, position, in_call=any(calls))
        position += len(token)
        if kind == "space":
            continue
        if token == "(":
            calls.append(bool(tokens) and tokens[-1].kind == "name" and tokens[-1].text != "of")
        elif token == ")":
            if not calls:
                raise CalculatorError("A closing parenthesis has no opening parenthesis.")
            calls.pop()
        elif token == "," and not (calls and calls[-1]):
            raise CalculatorError(
                "A comma may only separate the arguments of a function or groups of three digits."
            )
        tokens.append(_Token(kind, token))
    if calls:
        raise CalculatorError("A closing parenthesis is missing.")
    return tokens


def _match(text: str, position: int, *, in_call: bool) -> tuple[str, str]:
    """The kind and the text of the token at a position."""
    match = _TOKEN.match(text, position)
    if match is None:
        raise CalculatorError(
            f"The character {text[position]!a} is not arithmetic: use numbers, "
            "+ - * / ^ %, parentheses and functions."
        )
    if match.lastgroup == "grouped":
        # Among the arguments of a function a comma separates: max(1,234) has two.
        plain = _NUMBER.match(text, position) if in_call else match
        return "number", (plain or match).group()
    return str(match.lastgroup), match.group()


def _write(tokens: list[_Token]) -> str:
    parts: list[str] = []
    last, index = _EDGE, 0
    padded = [*tokens, _EDGE, _EDGE]
    while index < len(tokens):
        token, following, after = padded[index : index + 3]
        index += 1
        if token.text == "of" and last.text == "%":
            token = _Token("mark", "*")
        elif (
            token.starts_operand
            and last.ends_operand
            and not (last.kind == "name" and token.text == "(")  # a call
        ):
            raise CalculatorError(
                f"An operator is missing before {token.text[:40]!r}: write * to multiply."
            )
        elif token.text == "%" and not following.starts_operand:
            raise CalculatorError("A percentage needs a number before %: divide by 100 instead.")
        elif token.text == "!":
            raise CalculatorError("A factorial needs a number before it: write factorial(...).")
        if token.kind != "number":
            parts.append("**" if token.text == "^" else token.text)
        elif following.text == "!":
            parts.append(f"factorial({_literal(_value(token.text))})")
            index += 1
        elif following.text == "%" and (after.text == "of" or not after.starts_operand):
            parts.append(_literal(_value(token.text) / 100))
            index += 1
            last = _Token("number", "%")
            continue
        else:
            parts.append(_literal(_value(token.text)))
        last = token
    return "".join(parts)


def _value(number: str) -> Fraction:
    """The exact value of a decimal numeral."""
    mantissa, _, exponent = number.lower().replace(",", "").replace("_", "").partition("e")
    power = int(exponent or "0")
    if abs(power) > MAX_EXPONENT:
        raise CalculatorError(f"The number {number[:40]} is out of range.")
    return Fraction(mantissa.rstrip(".")) * Fraction(10) ** power


def _literal(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return f"({value.numerator}/{value.denominator})"
