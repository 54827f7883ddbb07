"""Whether two expressions have one value. Pure.

Numbers that are exact on both sides (whole numbers, fractions, roots, constants) must be equal.
Where a decimal is part of either, a relative difference of 1e-6 is no difference (of a whole
number, not more than 0.001), nor is half a unit of the last digit that the expected number is
written with: of three digits or more, 3.14 is also 3.1416; of two, 0.33 is also 1/3, but no other
number that is written with its digits: 3.2 million is not 3210000. The sign counts, and only 0
equals 0.
Expressions with variables are compared at points of the real line, with 60 digits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final

from mpmath import mp, mpc, mpf

from gymmesh_resource.environments.math.answers.evaluation import (
    DIGITS,
    TINY,
    MpNumber,
    NoValue,
    ValueTooLarge,
    approximate,
    exact,
    is_measured,
    symbols,
)
from gymmesh_resource.environments.math.answers.nodes import Node, walk

TOLERANCE = Fraction(1, 10**6)
# A whole number is exact: a decimal near it must be it but for errors of calculation.
_WHOLE_TOLERANCE = Fraction(1, 1_000)
# Digits to which exact values agree that are one value, and points that must agree.
_AGREE, _POINTS = mpf(10) ** -40, 4
_POSITIVE = [Fraction(p, q) for p, q in ((17, 13), (29, 7), (5, 11), (37, 19), (7, 23), (101, 31))]
# Signs of the names in alphabetical order, alternately: most formulas are of positive quantities.
_SIGNS: Final = ((1, 1), (-1, 1))
_ALL_SIGNS: Final = (*_SIGNS, (1, -1), (-1, -1))
_WHOLE = [Fraction(n) for n in (1, 2, 3, 5, 8, 12)]
_COUNTERS = frozenset("nmkjlNpq")


def same_value(expected: Node, answer: Node, scale: Fraction = Fraction(1)) -> bool:
    """Whether `answer` times `scale` is `expected`.

    Raises `Unreadable` for what cannot be calculated here, such as an unknown function.
    """
    if expected == answer and scale == 1:
        return True
    names = symbols(expected) | symbols(answer)
    if names:
        return scale == 1 and _same_function(expected, answer, sorted(names))
    try:
        return _same_number(expected, answer, scale)
    except NoValue:
        return expected == answer and scale == 1


def close(left: Node, right: Node, *, rounded: bool = False) -> bool:
    """Whether a link such as ``2/3 = 0.67`` holds: also by the digits of its right side.

    rounded: whether the right side may be rounded to a whole number, as in ``41.9 \\approx 42``.
    """
    if same_value(left, right) or same_value(right, left):
        return True
    if not rounded or symbols(left) | symbols(right):
        return False
    try:
        value, whole = approximate(left), exact(right)
    except NoValue:
        return False
    return bool(
        whole is not None
        and whole.denominator == 1
        and not _is_complex(value)
        and abs(mp.re(value) - int(whole)) <= mpf(1) / 2
    )


def place_of(node: Node, least: int) -> Fraction | None:
    """The value of the last written place of a decimal number; None for other expressions.

    A number of fewer digits than `least` is taken as it is: its last place says little.
    """
    match node.op:
        case "number":
            digits = node.name.lower().partition("e")[0].replace(".", "").lstrip("0")
            return node.place if len(digits) >= least else None
        case "neg" | "percent":
            place = place_of(node.args[0], least)
            return place / 100 if place is not None and node.op == "percent" else place
        case "times" | "mul":
            place, power = place_of(node.args[0], least), exact(node.args[1])
            is_power = node.args[1].op in ("pow", "number")
            return place * power if place is not None and power is not None and is_power else None
    return None


def proportional(first: Node, second: Node, *, positive: bool) -> bool:
    """Whether two expressions of variables are one but for a constant factor, which is not 0."""
    names = sorted(symbols(first) | symbols(second))
    factor: MpNumber = None
    for point in _real_points(names):
        try:
            one, other = approximate(first, point), approximate(second, point)
        except NoValue:
            continue
        with mp.workdps(DIGITS):
            if abs(one) < TINY or abs(other) < TINY:
                return False
            factor = one / other if factor is None else factor
            if abs(one / other - factor) > mpf(10) ** -20 * abs(factor):
                return False
    return factor is not None and (not positive or (not _is_complex(factor) and factor.real > 0))


def _same_number(expected: Node, answer: Node, scale: Fraction) -> bool:
    wanted, given = exact(expected), exact(answer)
    measured = is_measured(expected) or is_measured(answer)
    if wanted is not None and given is not None:
        given *= scale
        if not measured or wanted == given:
            return wanted == given
        return bool(wanted) and abs(wanted - given) <= _allowed(expected, answer, wanted)
    first = approximate(expected)
    with mp.workdps(DIGITS):
        second = approximate(answer) * scale.numerator / scale.denominator
        if mp.isinf(first) or mp.isinf(second):
            return bool(first == second)
        if abs(first) < TINY or abs(second) < TINY:
            return bool(abs(first) < TINY and abs(second) < TINY)
        difference = abs(first - second)
        if not measured:
            return bool(difference <= _AGREE * abs(first))
        allowed = _place(expected, answer)
        half = mpf(allowed.numerator) / allowed.denominator / 2
        return bool(difference <= max(half, abs(first) * mpf(10) ** -6))


def _allowed(expected: Node, answer: Node, wanted: Fraction) -> Fraction:
    if wanted.denominator == 1 and not is_measured(expected):
        return min(TOLERANCE * abs(wanted), _WHOLE_TOLERANCE)
    return max(TOLERANCE * abs(wanted), _place(expected, answer) / 2)


def _place(expected: Node, answer: Node) -> Fraction:
    """The last written place of the expected number, where that may be a rounded one; else 0."""
    written = is_measured(answer) or _is_written_out(answer)
    return place_of(expected, 3 if written else 2) or Fraction(0)


def _is_written_out(node: Node) -> bool:
    """Whether it is a whole number by its digits, with a sign, per cent or a power of 10."""
    match node.op:
        case "number":
            return node.value.denominator == 1
        case "neg" | "percent":
            return _is_written_out(node.args[0])
        case "times" | "mul":
            return _is_written_out(node.args[0]) and node.args[1].op in ("pow", "number")
    return False


def _same_function(expected: Node, answer: Node, names: list[str]) -> bool:
    """Whether the two agree wherever both are defined: the reals, or for counters 1, 2 and on.

    With an absolute value in `expected`, also the answer must be defined where `expected` is.
    """
    complex_too = any(
        one.op == "constant" and one.name == "i"
        for side in (expected, answer)
        for one in walk(side)
    )
    # An absolute value says that negative values count: ln(x) is not ln|x|.
    signed = _has_absolute_value(expected) or _has_absolute_value(answer)
    points = _real_points(names, _ALL_SIGNS if signed else _SIGNS)
    agree = mpf(10) ** (-6 if is_measured(expected) or is_measured(answer) else -30)
    outcome = _agree(expected, answer, points, agree, complex_too=complex_too)
    if outcome is not True and set(names) <= _COUNTERS:
        return (
            _agree(expected, answer, _whole_points(names), agree, complex_too=complex_too) is True
        )
    return outcome is True


def _agree(
    expected: Node,
    answer: Node,
    points: Iterator[dict[str, Fraction]],
    agree: MpNumber,
    *,
    complex_too: bool,
) -> bool | None:
    """None where too few points have a value on both sides."""
    # Other expressions may leave out a part of the line, as x^{1/3} does for the third root.
    whole = _has_absolute_value(expected)
    shared = 0
    for point in points:
        try:
            first, second = (_value_at(side, point, complex_too) for side in (expected, answer))
        except ValueTooLarge:
            continue
        if first is None or second is None:
            if first is not None and whole:
                return False
            continue
        if mp.isinf(first) or mp.isinf(second):
            continue
        with mp.workdps(DIGITS):
            size = max(abs(first), abs(second))
            if abs(first - second) > agree * size and size > TINY:
                return False
        shared += 1
    return True if shared >= _POINTS else None


def _value_at(node: Node, point: dict[str, Fraction], complex_too: bool) -> MpNumber | None:
    """None where it is not defined. Raises `ValueTooLarge` where that is not known."""
    try:
        value = approximate(node, point)
    except ValueTooLarge:
        raise
    except NoValue:
        return None
    return value if complex_too or not _is_complex(value) else None


def _has_absolute_value(node: Node) -> bool:
    return any(one.op == "abs" and symbols(one) for one in walk(node))


def _real_points(
    names: list[str], signs: Sequence[tuple[int, int]] = _SIGNS
) -> Iterator[dict[str, Fraction]]:
    for shift, of_both in itertools.product(range(len(_POSITIVE)), signs):
        yield {
            name: _POSITIVE[(shift + at) % len(_POSITIVE)] * (1 + at) * of_both[at % 2]
            for at, name in enumerate(names)
        }


def _whole_points(names: list[str]) -> Iterator[dict[str, Fraction]]:
    for shift in range(len(_WHOLE)):
        yield {name: _WHOLE[(shift + 2 * at) % len(_WHOLE)] for at, name in enumerate(names)}


def _is_complex(value: MpNumber) -> bool:
    return isinstance(value, mpc) and abs(value.imag) > TINY
