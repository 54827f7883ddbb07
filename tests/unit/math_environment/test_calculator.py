"""The calculator: what it computes, what it refuses, and that it does nothing else."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gymmesh_resource.environments.math.calculator import CalculatorError, evaluate

VALUES = {
    "0.1 + 0.2": "0.3",
    "7/2": "3.5",
    "1/3": "0.333333333333333",
    "-2 ^ 2": "-4",
    "2 ^ 3 ^ 2": "512",
    "2 ** 100": "1267650600228229401496703205376",
    "2 ^ -2": "0.25",
    "0 ^ 0": "1",
    "1 ^ 9999999999999": "1",
    "(-1) ^ 9999999999999": "-1",
    "4 ^ 0.5": "2",
    "50%": "0.5",
    "20% of 80": "16",
    "20% of (40 + 40)": "16",
    "50% - 3": "-2.5",
    "17 % 5": "2",
    "mod(3, -2)": "-1",
    "-7 // 2": "-4",
    "5!": "120",
    "1,234 + 1": "1235",
    "(1,234,567.5) * 2": "2469135",
    "max(1,234)": "234",
    "5 − 3 × 2 ÷ 4": "3.5",
    "2²": "4",
    "1_000 * 3": "3000",
    "007 + 1": "8",
    "1e3": "1000",
    "1e-5": "0.00001",
    "1e-20": "0.00000000000000000001",
    "1e-20 / 3": "3.33333333333333e-21",
    "100 * 1.05 ^ 10": "162.889462677744140625",
    "sqrt(16)": "4",
    "sqrt(1/4)": "0.5",
    "sqrt(2)": "1.4142135623731",
    "cbrt(-27)": "-3",
    "sin(pi)": "0",
    "cos(0)": "1",
    "log(8, 2)": "3",
    "log10(0.001)": "-3",
    "log(1)": "0",
    "round(2.5)": "3",
    "round(-2.5)": "-3",
    "round(2.675, 2)": "2.68",
    "floor(-0.5)": "-1",
    "gcd(12, 18)": "6",
    "lcm(4, 6)": "12",
    "comb(52, 5)": "2598960",
    "mean(1, 2)": "1.5",
    "100000000000000000000 / 7": "1.42857142857143e+19",
}

REFUSED = {
    "": "no expression",
    "1/0": "Division by zero",
    "0 ^ -1": "Division by zero",
    "x + 1": "Unknown name 'x'",
    "print(1)": "Unknown function 'print'",
    "1 +": "not complete",
    "((1)": "closing parenthesis is missing",
    "1)": "no opening parenthesis",
    "2(3)": "operator is missing",
    "1 2": "operator is missing",
    "0x10": "operator is missing",
    "1,23": "comma",
    "(5)%": "percentage",
    "3!!": "factorial",
    "sqrt(-1)": "not a real number",
    "(-8) ^ (1/3)": "not a real number",
    "log(0)": "positive",
    "asin(2)": "not defined",
    "sqrt()": "number of arguments",
    "max()": "at least one",
    "gcd(1.5, 2)": "whole numbers",
    "9 ** 9 ** 9 ** 9": "too large",
    "9 ^ 99999": "too large",
    "0.5 ^ 99999": "too large",
    "5000!": "too large",
    "comb(5000, 2500)": "too large",
    "factorial(100000)": "from 0 to 5000",
    "exp(1000)": "too large",
    "1e400": "out of range",
    "1e300 ^ 5": "too large",
    "1 << 9": "not arithmetic",
    "'a' * 9": "not arithmetic",
    "().__class__": "not arithmetic",
    "__import__('os')": "not arithmetic",
    "[1 for x in 2]": "not arithmetic",
    "a = 1": "not arithmetic",
    "None": "only numbers",
    "True": "only numbers",
    "max(*3)": "only arithmetic",
    "not(5)": "only arithmetic",
    "lambda(5)": "not complete",
    "yield(5)": "only arithmetic",
    "+".join(["1"] * 400): "levels",
    "2^" * 300 + "2": "levels",
    "-" * 400 + "1": "levels",
    "(" * 300 + "1" + ")" * 300: "",
    "1" * 1001: "longer than 1000",
    "\ud800": "not arithmetic",
    "٥ + 1": "not arithmetic",
}


@pytest.mark.parametrize(("expression", "value"), VALUES.items())
def test_value(expression: str, value: str) -> None:
    assert evaluate(expression) == value


@pytest.mark.parametrize(("expression", "message"), REFUSED.items(), ids=lambda text: text[:30])
def test_refusal(expression: str, message: str) -> None:
    with pytest.raises(CalculatorError) as raised:
        evaluate(expression)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("value", [None, 5, b"1+1", ["1"]])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(CalculatorError):
        evaluate(value)  # type: ignore[arg-type]  # the point of the test


WORDS = ["sqrt", "max", "log", "comb", "round", "factorial", "pi", "e", "of", "lambda", "lcm"]
FRAGMENTS = st.sampled_from([*"0123456789.,+-*/^%!()eπ×÷− '[]{}=_", "**", "//", "9999", *WORDS])


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(FRAGMENTS, max_size=40).map("".join)))
def test_a_number_or_a_calculator_error_and_nothing_else(expression: str) -> None:
    try:
        value = evaluate(expression)
    except CalculatorError:
        return
    Fraction(value)  # a number; raises ValueError otherwise


LEAVES = st.one_of(
    st.integers(0, 999).map(str), st.decimals("0", "99", places=2).map(lambda d: f"{d:f}")
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(TREES)
def test_agrees_with_fractions(expression: str) -> None:
    try:
        true = _fraction(expression)
    except ZeroDivisionError:
        with pytest.raises(CalculatorError, match="Division by zero"):
            evaluate(expression)
        return
    assume(len(expression) <= 1000)
    shown = Fraction(evaluate(expression))
    if true.denominator == 1:
        assert shown == true
    else:
        assert abs(shown - true) <= abs(true) / 10**14


def _fraction(expression: str) -> Fraction:
    """A parser of its own for the fully bracketed expressions above."""
    if not expression.startswith("("):
        return Fraction(expression)
    index, depth = 1, 1
    while depth > 1 or expression[index] != " ":
        depth += (expression[index] == "(") - (expression[index] == ")")
        index += 1
    left, sign, right = expression[1:index], expression[index + 1], expression[index + 3 : -1]
    a, b = _fraction(left), _fraction(right)
    return {"+": a.__add__, "-": a.__sub__, "*": a.__mul__, "/": a.__truediv__}[sign](b)
