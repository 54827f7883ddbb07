"""Writes cases/math.exact.jsonl: answers whose right value is known by exact arithmetic.

Each case starts from a value (a fraction, a date, a set of whole numbers), which is written as
the expected answer, then in other usual forms (worth 1.0) and, changed, in the same forms (worth
0.0). Nothing here is taken from the code that is judged. Run it from the repository's root:

    python -m tests.verdicts.make_math
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from fractions import Fraction
from math import factorial, gcd
from typing import Any, TypeAlias

from tests.verdicts.case_files import case, write

Case: TypeAlias = tuple[str, str, float, str, bool]
"""The expected answer, the answer, its right reward, why, whether it is in other clothes."""

_WIDE = str.maketrans("0123456789", "０１２３４５６７８９")
_ROUNDS = 12


def whole_numbers(rng: random.Random) -> Iterator[Case]:
    n = rng.choice([rng.randint(2, 99), rng.randint(100, 9_999), rng.randint(10_000, 10**9)])
    part = rng.randint(1, n - 1)
    clothes = [
        f"{n}.",
        f"+{n}",
        f"{n}.0",
        f"{n:,}",
        f"{n:,}".replace(",", "{,}"),
        f"\\text{{{n}}}",
        f"${n}$",
        f"x = {n}",
        f"{n}={n}",
        f"{part}+{n - part}={n}",
        f"\\frac{{{3 * n}}}{{3}}",
        f"{2 * n}/2",
        f"\\left({n}\\right)",
        str(n).translate(_WIDE),
        f"{100 * n}\\%",
        f"{bin(n)[2:]}_2",
        f"\\mathbf{{{n}}}",
        f"{n}\\text{{ apples}}",
        f" {n} ",
        f"\\boxed{{{n}}}",
        f"\\sqrt{{{n * n}}}",
        f"{n}^1",
        f"\\{{{n}\\}}",
        f"0{n}",
    ]
    wrong = [
        n + 1,
        n - 1,
        -n,
        10 * n,
        f"{n}\\%",
        f"{n - 1}={n}",
        f"{n + 1}\\to {n}",
        f"{n}={n + 1}",
        f"{n}, {n + 1}",
        f"{n - 1}\\text{{ or }}{n}",
        f"{part}+{n - part}",
        f"2\\cdot {n}",
        f"\\frac{{{n}}}{{2}}",
        f"{n % 10_000}.5",
        f"{n}i",
        f"({n}, {n})",
        f"x > {n}",
        f"\\frac{{1}}{{{n}}}",
        f"{n - 1}\\Rightarrow {n}",
        f"x={n - 1}={n}",
        f"{n}\\pm 1",
        f"{n}x",
        "0.0000001",
        "nan",
    ]
    yield from _of(str(n), rng.sample(clothes, 9), "a whole number", 1.0, clothes=True)
    yield from _of(str(n), rng.sample(wrong, 8), "not this whole number", 0.0)
    a, b = rng.randint(11, 99), rng.randint(11, 99)
    asked = [f"{a}\\cdot{b}", f"{a}\\times {b}", f"{a}*{b}", f"({a})({b})"]
    yield from _of(str(a * b), rng.sample(asked, 2), "the product is not carried out", 0.0)
    k = rng.randint(4, 9)
    yield str(factorial(k)), f"{k}!", 0.0, "the factorial is not carried out", False
    yield str(2**k), f"2^{{{k}}}", 1.0, "a power is a value", True


def decimals(rng: random.Random) -> Iterator[Case]:
    places = rng.randint(3, 5)
    digits = rng.randint(10**places // 10 + 1, 10**places - 1) * 10 + rng.randint(1, 9)
    value = Fraction(digits, 10 ** (places + 1))
    text = _decimal(value)
    shifted = _decimal(value * 100)
    clothes = [
        f"{text}0",
        text.lstrip("0"),
        f"{text}.",
        f"+{text}",
        _fraction(value),
        f"{shifted}\\%",
        f"{_decimal(value * 10)}\\times 10^{{-1}}",
        f"{_decimal(value * 1000)}e-3",
        f"x={text}",
        text.translate(_WIDE),
    ]
    step = Fraction(1, 10 ** (places + 1))
    wrong = [
        _decimal(value + step),
        _decimal(value - step),
        f"-{text}",
        _decimal(value * 10),
        _decimal(value / 10),
        f"{text}\\%",
        f"{shifted}",
        f"{text}e1",
        "0",
    ]
    yield from _of(text, rng.sample(clothes, 5), "a decimal", 1.0, clothes=True)
    yield from _of(text, rng.sample(wrong, 4), "not this decimal", 0.0)
    longer = _decimal(value + step * Fraction(rng.randint(-4, 4), 10))
    yield text, longer, 1.0, "more digits than the expected ones, which it rounds to", True


def fractions(rng: random.Random) -> Iterator[Case]:
    above, below = rng.randint(1, 60), rng.choice([3, 6, 7, 9, 11, 12, 13, 14, 17, 18, 19])
    value = Fraction(above, below)
    if value.denominator == 1:
        value += Fraction(1, 3)
    p, q = value.numerator, value.denominator
    whole, rest = divmod(p, q)
    expected = rng.choice([f"\\frac{{{p}}}{{{q}}}", f"{p}/{q}"])
    clothes = [
        f"\\dfrac{{{p}}}{{{q}}}",
        f"\\tfrac{{{p}}}{{{q}}}",
        f"{p} / {q}",
        f"\\frac{{{3 * p}}}{{{3 * q}}}",
        f"\\frac{{-{p}}}{{-{q}}}",
        f"{p}\\div {q}",
        f"({p})/({q})",
        f"\\frac{{{p}}}{{{q}}}.",
        f"y=\\frac{{{p}}}{{{q}}}",
        f"{p}:{q}",
        f"\\left(\\frac{{{p}}}{{{q}}}\\right)",
    ]
    if whole:
        clothes += [f"{whole} {rest}/{q}", f"{whole}\\frac{{{rest}}}{{{q}}}"] * 2
    wrong = [
        f"\\frac{{{q}}}{{{p}}}",
        f"\\frac{{{p + 1}}}{{{q}}}",
        f"\\frac{{{p}}}{{{q + 1}}}",
        f"-\\frac{{{p}}}{{{q}}}",
        f"{p}{q}",
        f"{p}.{q}",
        f"\\frac{{{p}}}{{{q}}}\\%",
        f"\\frac{{{p}}}{{{10 * q}}}",
        _decimal(Fraction(round(value * 100), 100)),
    ]
    yield from _of(expected, rng.sample(clothes, 6), "a fraction", 1.0, clothes=True)
    yield from _of(expected, rng.sample(wrong, 4), "not this fraction", 0.0)
    yield (
        f"-{expected}",
        f"-{whole}\\frac{{{rest}}}{{{q}}}" if whole else f"\\frac{{-{p}}}{{{q}}}",
        1.0,
        ("a negative fraction"),
        True,
    )


def small_and_large(rng: random.Random) -> Iterator[Case]:
    power, lead, rest = rng.randint(8, 60), rng.randint(1, 9), rng.randint(11, 99)
    sign = rng.choice(["-", ""])
    expected = f"{lead}.{rest}\\times10^{{{sign}{power}}}"
    clothes = [
        f"{lead}.{rest}\\cdot 10^{{{sign}{power}}}",
        f"{lead}.{rest}e{sign}{power}",
        f"{lead}.{rest}0 \\times 10^{{{sign}{power}}}",
        f"{lead}.{rest}E{sign}{power}",
        f"{lead}{rest}\\times10^{{{(-power if sign else power) - 2}}}",
        f"{lead}.{rest} * 10^{sign}{power}" if not sign else f"{lead}.{rest} * 10^{{-{power}}}",
    ]
    wrong = [
        f"{lead}.{rest}\\times10^{{{sign}{power + 1}}}",
        f"{lead}.{rest}\\times10^{{{sign}{power - 1}}}",
        f"-{lead}.{rest}\\times10^{{{sign}{power}}}",
        "0.0000001",
        "0",
        "1e-300",
        f"{lead}.{rest + 1 if rest < 99 else 10}\\times10^{{{sign}{power}}}",
        f"{lead}.{rest}\\times10^{{{'' if sign else '-'}{power}}}",
        f"{lead}.{rest}",
    ]
    yield from _of(expected, rng.sample(clothes, 4), "scientific notation", 1.0, clothes=True)
    yield from _of(expected, rng.sample(wrong, 5), "another size, digit or sign", 0.0)
    n = rng.randint(15, 60)
    exact = f"\\frac{{1}}{{{n}!}}"
    yield exact, f"\\frac{{1}}{{{factorial(n)}}}", 1.0, "exact, however small", True
    yield exact, f"\\frac{{1}}{{{n - 1}!}}", 0.0, "exact, however small", False
    yield exact, f"\\frac{{1}}{{{factorial(n) + 1}}}", 0.0, "exact, however small", False
    yield f"2^{{{n + 40}}}", str(2 ** (n + 40)), 1.0, "exact, however large", True
    yield f"2^{{{n + 40}}}", str(2 ** (n + 40) + 1), 0.0, "exact, however large", False


def collections(rng: random.Random) -> Iterator[Case]:
    members = rng.sample(range(-20, 40), rng.randint(3, 4))
    turned = members[::-1]
    other = [*members[:-1], members[-1] + 50]
    inside, reverse, changed = (", ".join(map(str, some)) for some in (members, turned, other))
    braces = f"\\{{{inside}\\}}"
    yield from _of(
        braces,
        [
            f"\\{{{reverse}\\}}",
            reverse,
            f"\\left\\{{{inside}\\right\\}}",
            f"\\{{{inside}, {members[0]}\\}}",
            inside.replace(",", ";"),
            " or ".join(f"x={one}" for one in members),
        ],
        "a set has no order and no repeated members",
        1.0,
        clothes=True,
    )
    yield from _of(
        braces,
        [
            f"\\{{{changed}\\}}",
            f"({inside})",
            f"\\{{{', '.join(map(str, members[1:]))}\\}}",
            f"{inside}, {members[0]}",
            members[0],
        ],
        "not this set",
        0.0,
    )
    yield f"{inside}, {members[0]}", inside, 0.0, "a list's members count", False
    yield f"{inside}, {members[0]}", f"{members[0]}, {reverse}", 1.0, "a list has no order", True
    yield f"({inside})", f"\\left({inside}\\right).", 1.0, "a tuple", True
    yield f"({inside})", f"({reverse})", 0.0, "a tuple has an order", False
    yield f"({inside})", braces, 0.0, "a tuple is not a set", False
    low, high = sorted(rng.sample(range(-30, 30), 2))
    yield from _of(
        f"({low},{high}]",
        [
            f"{low}<x\\le {high}",
            f"\\left({low}, {high}\\right]",
            f"x\\in({low},{high}]",
            f"{high}\\ge x>{low}",
        ],
        "an interval",
        1.0,
        clothes=True,
    )
    yield from _of(
        f"({low},{high}]",
        [f"[{low},{high})", f"({low},{high})", f"{low}\\le x\\le {high}", f"({low},{high + 1}]"],
        "not this interval",
        0.0,
    )
    yield from _of(
        f"({low},\\infty)", [f"x>{low}", f"{low}<x", f"t > {low}."], "a ray", 1.0, clothes=True
    )
    yield from _of(f"({low},\\infty)", [f"x\\ge {low}", f"x<{low}", low], "not this ray", 0.0)
    yield f"x\\le {high}", f"(-\\infty,{high}]", 1.0, "a ray", True
    yield f"\\{{{low},{high}\\}}", f"[{low},{high}]", 0.0, "a set is not an interval", False
    yield f"[{low},{high}]", f"({low},{high})", 0.0, "closed is not open", False


def bases(rng: random.Random) -> Iterator[Case]:
    base, n = rng.choice([2, 3, 5, 7, 8]), rng.randint(20, 400)
    digits = _in_base(n, base)
    expected = f"{digits}_{base}"
    other = rng.choice([one for one in (4, 6, 9, 10, 11, 12) if one > base])
    clothes = [
        f"{digits}_{{{base}}}",
        f"({digits})_{base}",
        n,
        f"{_in_base(n, 9)}_9",
        f"{n}_{{10}}",
    ]
    yield from _of(expected, clothes, "a number in a base", 1.0, clothes=True)
    wrong = [digits, f"{digits}_{{{other}}}", n + 1, f"{_in_base(n + 1, base)}_{base}"]
    yield from _of(expected, wrong, "another base or number", 0.0)
    yield str(n), f"{_in_base(n, 16)}_{{16}}", 1.0, "a number in a base", True


_UNITS = [
    ("km", "m", 1000),
    ("m", "cm", 100),
    ("cm", "mm", 10),
    ("kg", "g", 1000),
    ("h", "min", 60),
    ("hours", "minutes", 60),
    ("L", "mL", 1000),
    ("feet", "inches", 12),
    ("weeks", "days", 7),
]


def units(rng: random.Random) -> Iterator[Case]:
    large, small, factor = rng.choice(_UNITS)
    n = rng.randint(2, 90)
    expected = f"{n}\\text{{ {large}}}"
    clothes = [
        n,
        f"{n}\\,\\text{{{large}}}",
        f"{n} {large}",
        f"{n * factor}\\text{{ {small}}}",
        f"{n}.0\\text{{ {large}}}",
        f"x={n}\\ \\mathrm{{{large}}}",
    ]
    wrong = [
        f"{n}\\text{{ {small}}}",
        f"{n + 1}\\text{{ {large}}}",
        f"{n}\\text{{ apples}}",
        f"-{n}\\text{{ {large}}}",
        f"{n * factor}\\text{{ {large}}}",
        f"{n}\\text{{ {large}}}^2",
    ]
    yield from _of(expected, rng.sample(clothes, 4), "a quantity", 1.0, clothes=True)
    yield from _of(expected, rng.sample(wrong, 4), "another quantity", 0.0)
    percent = rng.randint(2, 99)
    yield from _of(
        f"{percent}\\%",
        [
            f"{percent} percent",
            f"{percent}\\text{{ percent}}",
            _decimal(Fraction(percent, 100)),
            f"\\frac{{{percent}}}{{100}}",
        ],
        "a percentage",
        1.0,
        clothes=True,
    )
    yield from _of(
        f"{percent}\\%",
        [percent, f"{percent + 1}\\%", f"-{percent}\\%"],
        "not this percentage",
        0.0,
    )
    pounds = rng.randint(11, 99)
    yield f"\\${pounds}.50", f"{pounds}.5\\text{{ dollars}}", 1.0, "an amount of money", True
    yield f"\\${pounds}.50", f"€{pounds}.50", 0.0, "another currency", False


def dates(rng: random.Random) -> Iterator[Case]:
    day = date(1900, 1, 1) + timedelta(days=rng.randint(0, 45_000))
    if day.day == day.month:
        day += timedelta(days=1)
    iso, next_day = day.isoformat(), day + timedelta(days=1)
    swapped = f"{day.year}-{day.day:02}-{day.month:02}"
    sums = day.year - day.month - day.day
    clothes = [
        f"{day:%B} {day.day}, {day.year}",
        f"{day.day} {day:%B} {day.year}",
        f"{day:%b} {day.day}, {day.year}",
        f"\\text{{{iso}}}",
        f"{iso}.",
    ]
    yield from _of(iso, rng.sample(clothes, 3), "a date", 1.0, clothes=True)
    yield from _of(iso, [swapped, next_day.isoformat(), sums], "another date", 0.0)
    hour, minute = rng.randint(1, 11), rng.randint(10, 59)
    noon = f"{hour}:{minute} PM"
    yield from _of(
        noon, [f"{hour}:{minute} p.m.", f"{hour + 12}:{minute}"], "a time", 1.0, clothes=True
    )
    yield from _of(
        noon, [f"{hour}:{minute} AM", f"{hour % 11 + 1}:{minute} PM"], "another time", 0.0
    )


_WORDS = [
    "listen",
    "silent",
    "Tuesday",
    "triangle",
    "odd",
    "Paris",
    "north",
    "green",
    "prime",
    "yes",
    "Ada",
    "cat",
]


def words(rng: random.Random) -> Iterator[Case]:
    word, other = rng.sample(_WORDS, 2)
    letters = list(word)
    while "".join(letters).lower() == word.lower():
        rng.shuffle(letters)
    clothes = [
        word.upper(),
        f"\\text{{{word}}}",
        f"{word}.",
        f"**{word}**",
        f" \\textbf{{{word}}} ",
    ]
    yield from _of(word, rng.sample(clothes, 3), "a word", 1.0, clothes=True)
    yield from _of(
        word, ["".join(letters), other, f"{word}x", word[:-1], "42"], "another word", 0.0
    )


def algebra(rng: random.Random) -> Iterator[Case]:
    a, b = rng.sample([n for n in range(-9, 10) if n], 2)
    expanded = f"x^2{a + b:+d}x{a * b:+d}" if a + b else f"x^2{a * b:+d}"
    wrong = f"x^2{a + b:+d}x{a * b + 1:+d}" if a + b else f"x^2{a * b + 1:+d}"
    factors = f"(x{a:+d})(x{b:+d})"
    yield expanded, factors, 1.0, "a product of binomials", True
    yield factors, f"{a * b}+{a + b}x+x^2".replace("+-", "-"), 1.0, "another order", True
    yield factors, wrong, 0.0, "another constant", False
    yield factors, f"(x{-a:+d})(x{b:+d})", 0.0, "another sign", False
    k, inner = rng.randint(2, 9), rng.choice([2, 3, 5, 6, 7, 10])
    root = f"{k}\\sqrt{{{inner}}}"
    yield root, f"\\sqrt{{{k * k * inner}}}", 1.0, "a root", True
    yield (
        root,
        f"\\sqrt{inner}\\cdot {k}" if inner < 10 else f"\\sqrt{{{inner}}}\\cdot {k}",
        1.0,
        "a root",
        True,
    )
    yield root, f"\\sqrt{{{k * inner}}}" if k > 1 else "0", 0.0, "another root", False
    yield root, f"-{root}", 0.0, "another sign", False
    c, d = rng.randint(1, 9), rng.randint(1, 9)
    real, imaginary = a * c - b * d, a * d + b * c
    shown = f"{real}{imaginary:+d}i" if imaginary else str(real)
    yield f"({a}{b:+d}i)({c}{d:+d}i)", shown, 1.0, "complex numbers", True
    yield f"({a}{b:+d}i)({c}{d:+d}i)", f"{real + 1}{imaginary:+d}i", 0.0, "complex numbers", False
    yield f"y={a}x{b:+d}", f"{a}x{b:+d}", 1.0, "the name may be missing", True
    yield f"y={a}x{b:+d}", f"{a}x-y{b:+d}=0", 1.0, "an equation turned round", True
    yield f"y={a}x{b:+d}", f"y={a}x{b + 1:+d}", 0.0, "another line", False
    yield f"x={a}", f"y={a}", 0.0, "another name", False
    first, second = sorted((a, b))
    yield f"{first},{second}", f"x={second}\\text{{ or }}x={first}", 1.0, "two solutions", True
    yield f"({a},{b})", f"x={a}, y={b}", 1.0, "a pair by its names", True
    yield f"({a},{b})", f"x={b}, y={a}", 0.0, "a pair by its names, swapped", False
    p, q = abs(a) + 1, abs(b) + 12
    shared = gcd(p, q)
    p, q = p // shared, q // shared
    yield f"{p}:{q}", f"{p * 3}:{q * 3}", 1.0, "a ratio", True
    yield f"{p}:{q}", f"{q}:{p}", 0.0, "a ratio turned round", False


KINDS: list[Callable[[random.Random], Iterator[Case]]] = [
    whole_numbers,
    decimals,
    fractions,
    small_and_large,
    collections,
    bases,
    units,
    dates,
    words,
    algebra,
]


def _of(
    expected: str, answers: list[Any], why: str, right: float, *, clothes: bool = False
) -> Iterator[Case]:
    for answer in answers:
        yield expected, str(answer), right, why, clothes


def _decimal(value: Fraction) -> str:
    """A terminating decimal, written out."""
    sign, value, places = "-" if value < 0 else "", abs(value), 0
    while value.denominator != 1:
        value, places = value * 10, places + 1
    digits = str(value.numerator).rjust(places + 1, "0")
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)


def _fraction(value: Fraction) -> str:
    return f"\\frac{{{value.numerator}}}{{{value.denominator}}}"


def _in_base(n: int, base: int) -> str:
    digits = ""
    while n:
        n, digit = divmod(n, base)
        digits = "0123456789ABCDEF"[digit] + digits
    return digits


def main() -> None:
    """Write the file."""
    rng = random.Random(30)
    made: dict[tuple[str, str], Case] = {}
    for _ in range(_ROUNDS):
        for kind in KINDS:
            made.update({one[:2]: one for one in kind(rng)})
    write(
        "math.exact",
        (
            case(
                {"expected_answer": expected},
                f"\\boxed{{{answer}}}",
                right,
                why,
                source="exact arithmetic",
                **({"clothes": True} if clothes else {}),
            )
            for expected, answer, right, why, clothes in made.values()
        ),
    )


if __name__ == "__main__":
    main()
