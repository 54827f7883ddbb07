"""The functions and constants of the calculator, each bounded in size and time.

Invariant: a function takes and gives finite numbers only, exact (`Fraction`) wherever the true
result is a fraction, and does no work that grows beyond `MAX_BITS`-bit integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial, wraps
from typing import TypeVar

from gymmesh_resource.environments.math.calculator_notation import CalculatorError

Number = Fraction | float
T = TypeVar("T")

# About 1,233 decimal digits: enough for 2 ^ 4000 or 500!, little enough to be instant.
MAX_BITS = 4096
# The largest argument of comb and perm, whose results outgrow MAX_BITS long before.
MAX_COUNT = 5000
# How far a sine of a multiple of the float nearest to pi is from zero.
TRIGONOMETRIC_NOISE = 1e-15

NAMES: dict[str, Number] = {"pi": math.pi, "e": math.e}


def bounded(function: Callable[..., Number]) -> Callable[..., Number]:
    """A function whose result is refused when it is too large, infinite or not real."""

    @wraps(function)
    def checked(*arguments: Number) -> Number:
        result = function(*arguments)
        if isinstance(result, int):  # such as floor and // on fractions give
            result = Fraction(result)
        if isinstance(result, Fraction):
            if max(result.numerator.bit_length(), result.denominator.bit_length()) > MAX_BITS:
                raise CalculatorError("The result is too large for this calculator.")
        elif not isinstance(result, float):
            raise CalculatorError("The result is not a real number.")
        elif not math.isfinite(result):
            raise CalculatorError("The result is too large for this calculator.")
        return result

    return checked


def power(base: Number, exponent: Number) -> Number:
    """base ^ exponent, exact for a fraction to a whole power and for exact square roots."""
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if exponent.denominator == 1:
            return _whole_power(base, exponent.numerator)
        if exponent.denominator == 2 and base >= 0:
            return power(_square_root(base), Fraction(exponent.numerator))
    if base < 0 and not float(exponent).is_integer():
        raise CalculatorError(
            "A negative number to a power that is not whole is not a real number."
        )
    return math.pow(base, exponent)


def _whole_power(base: Fraction, exponent: int) -> Fraction:
    if base in (0, 1, -1):
        # Small whatever the exponent; only its sign and parity matter.
        return base ** (exponent if abs(exponent) < 2 else (2 - exponent % 2) * _sign(exponent))
    if not _fits(base, exponent):
        raise CalculatorError("The result is too large for this calculator.")
    return base**exponent


def _fits(base: Fraction, exponent: int) -> bool:
    """Whether a power is worth calculating: it has at least (bits - 1) * |exponent| bits."""
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    return (bits - 1) * abs(exponent) <= MAX_BITS


def _sign(value: Number) -> int:
    return (value > 0) - (value < 0)


def _square_root(value: Number) -> Number:
    if value < 0:
        raise CalculatorError("The square root of a negative number is not a real number.")
    if isinstance(value, Fraction):
        root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
        if root * root == value:
            return root
    return math.sqrt(value)


def _cube_root(value: Number) -> Number:
    size = math.pow(_absolute(value), 1 / 3)
    nearest = Fraction(round(size))
    if isinstance(value, Fraction) and nearest**3 == abs(value):
        return nearest * _sign(value)
    return size * _sign(value)


def _whole(value: Number, name: str) -> int:
    exact = Fraction(value)
    if exact.denominator != 1:
        raise CalculatorError(f"The function {name} needs whole numbers.")
    return exact.numerator


def _count(value: Number, name: str) -> int:
    whole = _whole(value, name)
    if not 0 <= whole <= MAX_COUNT:
        raise CalculatorError(f"The function {name} needs whole numbers from 0 to {MAX_COUNT}.")
    return whole


def _factorial(value: Number) -> Number:
    whole = _count(value, "factorial")
    if whole > 600:  # it has more than MAX_BITS bits already
        raise CalculatorError("The result is too large for this calculator.")
    return math.factorial(whole)


def _of(convert: Callable[[Number], T], function: Callable[..., Number]) -> Callable[..., Number]:
    """The function of converted arguments."""
    return lambda *values: function(*map(convert, values))


def _round(value: Number, places: Number = Fraction(0)) -> Number:
    """Rounded to decimal places, halves away from zero as taught in school."""
    digits = _whole(places, "round")
    if abs(digits) > 300:
        raise CalculatorError("The function round takes at most 300 decimal places.")
    # A float stands for the decimal it is written as, so round(2.5 * sqrt(4)) has no surprises.
    exact = Fraction(repr(value)) if isinstance(value, float) else value
    scale = Fraction(10) ** digits
    return math.floor(abs(exact) * scale + Fraction(1, 2)) / scale * _sign(exact)


def _logarithm(value: Number, base: Number = math.e) -> Number:
    if value <= 0 or base <= 0 or base == 1:
        raise CalculatorError(
            "A logarithm needs a positive number, and a positive base other than 1."
        )
    quotient = _natural(value) / _natural(base)
    if isinstance(base, Fraction) and _fits(base, round(quotient)):
        whole = round(quotient)
        return Fraction(whole) if base**whole == value else quotient
    return quotient


def _natural(value: Number) -> float:
    """The natural logarithm, also of a fraction that no float can hold."""
    if isinstance(value, Fraction):
        difference = math.log(value.numerator) - math.log(value.denominator)
        # Near 1 the difference cancels; there a float is exact enough.
        return difference if abs(difference) > 1 else math.log1p(float(value - 1))
    return math.log(value)


def _trigonometric(function: Callable[[float], float]) -> Callable[[Number], Number]:
    def near_zero_is_zero(angle: Number) -> Number:
        result = function(float(angle))
        return 0.0 if abs(result) < TRIGONOMETRIC_NOISE < _absolute(angle) else result

    return near_zero_is_zero


def _of_some(name: str, function: Callable[..., Number]) -> Callable[..., Number]:
    def checked(*values: Number) -> Number:
        if not values:
            raise CalculatorError(f"The function {name} needs at least one number.")
        return function(values)

    return checked


def _absolute(value: Number) -> Number:
    return -value if value < 0 else value


_UNBOUNDED: dict[str, Callable[..., Number]] = {
    "abs": _absolute,
    "sqrt": _square_root,
    "cbrt": _cube_root,
    "pow": power,
    "round": _round,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "min": _of_some("min", min),
    "max": _of_some("max", max),
    "sum": _of_some("sum", lambda values: sum(values, Fraction(0))),
    "mean": _of_some("mean", lambda values: sum(values, Fraction(0)) / len(values)),
    "mod": lambda dividend, divisor: dividend % divisor,
    "gcd": _of(partial(_whole, name="gcd"), math.gcd),
    "lcm": _of(partial(_whole, name="lcm"), math.lcm),
    "factorial": _factorial,
    "comb": _of(partial(_count, name="comb"), math.comb),
    "perm": _of(partial(_count, name="perm"), math.perm),
    "log": _logarithm,
    "ln": lambda value: _logarithm(value),
    "log10": lambda value: _logarithm(value, Fraction(10)),
    "log2": lambda value: _logarithm(value, Fraction(2)),
    "exp": _of(float, math.exp),
    "sin": _trigonometric(math.sin),
    "cos": _trigonometric(math.cos),
    "tan": _trigonometric(math.tan),
    "asin": _of(float, math.asin),
    "acos": _of(float, math.acos),
    "atan": _of(float, math.atan),
    "degrees": _of(float, math.degrees),
    "radians": _of(float, math.radians),
}

FUNCTIONS = {name: bounded(function) for name, function in _UNBOUNDED.items()}
