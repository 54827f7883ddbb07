"""The value of an expression: an exact fraction if possible, else a number of 60 digits.

Pure. The work for one value is limited: an expression with powers or factorials beyond the limits
below raises `ValueTooLarge`. An expression without a value, such as 1/0, raises `NoValue`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from mpmath import mp, mpc, mpf

from gymmesh_resource.environments.math.answers.nodes import Node, Unreadable, walk

DIGITS = 60
# Numbers of magnitude below this come from rounding: 60 digits are calculated with.
TINY = mpf(10) ** -45
_BITS = 100_000
_FACTORIAL = 3_000
# Terms of a sum, and of a sum of sums.
_TERMS, _TERMS_OF_SUMS = 1_000, 30
_MAGNITUDE = 1e5

MpNumber: TypeAlias = Any  # mpmath has no types: an mpf or an mpc
Values: TypeAlias = Mapping[str, Fraction]


class NoValue(ArithmeticError):
    """The expression has no value there."""


class ValueTooLarge(NoValue):
    """Its value takes more than the bounds of this module allow."""


def symbols(node: Node) -> frozenset[str]:
    """The names of the free symbols of an expression."""
    bound = {one.args[0].name for one in walk(node) if one.op in ("sum", "prod")}
    return frozenset(one.name for one in walk(node) if one.op == "symbol") - bound


def is_measured(node: Node) -> bool:
    """Whether a decimal is part of it, which may be rounded."""
    return any(one.place is not None for one in walk(node))


def exact(node: Node, values: Values | None = None) -> Fraction | None:
    """The rational value, None where it is not rational or not seen to be. Raises `NoValue`."""
    if node.op == "number":
        return node.value
    if node.op in ("symbol", "constant"):
        return (values or {}).get(node.name)
    if node.op in ("sum", "prod"):
        return _series(node, values or {})
    rule = _EXACT.get(node.op)
    if rule is None:
        return None
    parts = [exact(part, values) for part in node.args]
    known = [part for part in parts if part is not None]
    return rule(*known) if len(known) == len(parts) else None


def approximate(node: Node, values: Values | None = None) -> MpNumber:
    """The real or complex value in 60 digits. Raises `NoValue`, `Unreadable`."""
    with mp.workdps(DIGITS):
        try:
            value = _approximate(node, values or {})
        except (ZeroDivisionError, OverflowError, ValueError, mp.NoConvergence):
            raise NoValue("it has no value") from None
        if mp.isnan(value):
            raise NoValue("it has no value")
        return value


def _approximate(node: Node, values: Values) -> MpNumber:
    rational = exact(node, values)
    if rational is not None:
        return mpf(rational.numerator) / rational.denominator
    if node.op == "constant":
        return {"pi": +mp.pi, "e": +mp.e, "i": mpc(0, 1), "infty": mp.inf}[node.name]
    if node.op == "symbol":
        raise NoValue(f"{node.name} has no value")
    rule = _APPROXIMATE.get(node.op)
    if rule is None:
        raise Unreadable(f"{node.op} cannot be calculated here")
    return rule(*(_approximate(part, values) for part in node.args))


def _series(node: Node, values: Values) -> Fraction | None:
    index, low, high, term = node.args
    first, last = exact(low, values), exact(high, values)
    if first is None or last is None:
        raise NoValue("the bounds of a sum are not numbers")
    nested = any(one.op in ("sum", "prod") for one in walk(term))
    most = _TERMS_OF_SUMS if nested else _TERMS
    if first.denominator != 1 or last.denominator != 1 or last - first > most:
        raise ValueTooLarge("a sum has too many terms")
    total = Fraction(node.op == "prod")
    for k in range(int(first), int(last) + 1):
        one = exact(term, {**values, index.name: Fraction(k)})
        if one is None:
            raise NoValue("a sum's terms are not rational")
        total = total * one if node.op == "prod" else total + one
        _bounded(total)
    return total


def _bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() + value.denominator.bit_length() > _BITS:
        raise ValueTooLarge("a number has too many digits")
    return value


def _divide(above: Fraction, below: Fraction) -> Fraction:
    if not below:
        raise NoValue("it divides by zero")
    return _bounded(above / below)


def _power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if not base:
        if exponent < 0:
            raise NoValue("it divides by zero")
        return Fraction(not exponent)
    if exponent.denominator != 1:
        root = _root(base, Fraction(exponent.denominator))
        return None if root is None else _power(root, Fraction(exponent.numerator))
    bits = base.numerator.bit_length() + base.denominator.bit_length()
    if abs(base) != 1 and bits * abs(exponent) > _BITS:
        return None
    return base ** int(exponent) if abs(base) != 1 else base ** int(exponent % 2)


def _root(base: Fraction, degree: Fraction) -> Fraction | None:
    """The exact real root, if it is rational."""
    if degree.denominator != 1 or not 0 < degree < 1_000 or base < 0:
        return None
    parts = [_whole_root(part, int(degree)) for part in (base.numerator, base.denominator)]
    return None if None in parts else Fraction(parts[0] or 0, parts[1] or 1)


def _whole_root(value: int, degree: int) -> int | None:
    if degree == 2:
        root = math.isqrt(value)
    else:
        high = 1 << -(-value.bit_length() // degree)
        low = 0
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
        root = low
    return root if root**degree == value else None


def _factorial(value: Fraction) -> Fraction | None:
    if value.denominator != 1:
        return None
    if value < 0:
        raise NoValue("the factorial of a negative number is not defined")
    return Fraction(math.factorial(int(value))) if value <= _FACTORIAL else None


def _double_factorial(value: Fraction) -> Fraction | None:
    if value.denominator != 1 or not 0 <= value <= _FACTORIAL:
        return None
    return Fraction(math.prod(range(int(value), 0, -2)))


def _binomial(n: Fraction, k: Fraction) -> Fraction | None:
    if n.denominator != 1 or k.denominator != 1 or not 0 <= n <= _FACTORIAL:
        return None
    return Fraction(math.comb(int(n), int(k)) if k >= 0 else 0)


def _whole(function: Callable[..., int]) -> Callable[..., Fraction | None]:
    def rule(*values: Fraction) -> Fraction | None:
        if any(value.denominator != 1 for value in values):
            return None
        return Fraction(function(*map(int, values)))

    return rule


_EXACT: Mapping[str, Callable[..., Fraction | None]] = {
    "add": lambda a, b: _bounded(a + b),
    "sub": lambda a, b: _bounded(a - b),
    "neg": lambda a: -a,
    "mul": lambda a, b: _bounded(a * b),
    "times": lambda a, b: _bounded(a * b),
    "frac": _divide,
    "mixed": lambda a, b: a + b,
    "pow": _power,
    "sqrt": lambda a: _root(a, Fraction(2)),
    "root": _root,
    "percent": lambda a: a / 100,
    "abs": abs,
    "floor": lambda a: Fraction(math.floor(a)),
    "ceil": lambda a: Fraction(math.ceil(a)),
    "factorial": _factorial,
    "double_factorial": _double_factorial,
    "binom": _binomial,
    "max": lambda *values: max(values),
    "min": lambda *values: min(values),
    "gcd": _whole(math.gcd),
    "lcm": _whole(math.lcm),
}


def _large_power(base: MpNumber, exponent: MpNumber) -> MpNumber:
    if base and abs(exponent * mp.log(abs(base), 2)) > _MAGNITUDE:
        raise ValueTooLarge("a power is too large")
    return mp.power(base, exponent)


def _root_of(base: MpNumber, degree: MpNumber) -> MpNumber:
    """The real root of a negative number where the degree is odd, as is usual."""
    whole = mp.isint(degree) and int(degree) % 2
    if whole and not isinstance(base, mpc) and base < 0:
        return -mp.root(-base, int(degree))
    return mp.power(base, 1 / degree)


def _logarithm(value: MpNumber, base: MpNumber = 10) -> MpNumber:
    return mp.log(value) / mp.log(base)


def _gamma(value: MpNumber) -> MpNumber:
    if abs(value) > _BITS:
        raise ValueTooLarge("a factorial is too large")
    return mp.gamma(value)


def _binomial_of(above: MpNumber, below: MpNumber) -> MpNumber:
    if max(abs(above), abs(below)) > _BITS:
        raise ValueTooLarge("a binomial coefficient is too large")
    return mp.binomial(above, below)


def _of_real(function: Callable[..., MpNumber]) -> Callable[..., MpNumber]:
    def rule(*values: MpNumber) -> MpNumber:
        if any(isinstance(value, mpc) and abs(value.imag) > TINY for value in values):
            raise NoValue("it is not defined for complex numbers")
        return function(*(value.real for value in values))

    return rule


_APPROXIMATE: Mapping[str, Callable[..., MpNumber]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "neg": lambda a: -a,
    "mul": lambda a, b: a * b,
    "times": lambda a, b: a * b,
    "frac": lambda a, b: a / b,
    "mixed": lambda a, b: a + b,
    "pow": _large_power,
    "sqrt": mp.sqrt,
    "root": _root_of,
    "percent": lambda a: a / 100,
    "deg": lambda a: a * mp.pi / 180,
    "abs": abs,
    "floor": _of_real(mp.floor),
    "ceil": _of_real(mp.ceil),
    "factorial": lambda a: _gamma(a + 1),
    "gamma": _gamma,
    "binom": _binomial_of,
    "max": _of_real(lambda *values: max(values)),
    "min": _of_real(lambda *values: min(values)),
    "exp": lambda a: _large_power(mp.e, a),
    "ln": lambda a, base=mp.e: _logarithm(a, base),
    "log": _logarithm,
    "Re": lambda a: mpf(mp.re(a)),
    "Im": lambda a: mpf(mp.im(a)),
    "arg": mp.arg,
    **{name: getattr(mp, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{name: getattr(mp, name) for name in ("cot", "sec", "csc", "coth")},
    **{
        f"arc{name}": getattr(mp, f"a{name}") for name in ("sin", "cos", "tan", "cot", "sec", "csc")
    },
    **{f"arc{name}": getattr(mp, f"a{name}") for name in ("sinh", "cosh", "tanh")},
}
