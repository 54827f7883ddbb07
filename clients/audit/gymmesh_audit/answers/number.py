"""Numbers and formulas: changed digits, signs, magnitudes; other usual ways to write one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

from gymmesh_audit.answers import text
from gymmesh_audit.answers.orders import digit_orders
from gymmesh_audit.answers.pattern import matches
from gymmesh_audit.answers.variant import Variant
from gymmesh_audit.gold import ANSWER, Gold, number_of

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_FULL_WIDTH = str.maketrans("0123456789", "０１２３４５６７８９")
_PLAIN = re.compile(r"-?\d+(?:\.\d+)?")


def nearly(gold: Gold) -> Iterator[Variant]:
    """Other numbers that look like the expected number."""
    answer = gold.answer
    yield from _formula_changes(answer)
    yield from digit_orders(answer)
    found = list(_NUMBER.finditer(answer))
    if not found:
        yield from text.nearly(gold)
        return
    if "\\boxed" in gold.form:
        yield from _left_to_compute(answer)
    yield from matches(answer)
    last, first = found[-1], found[0]
    yield Variant("last digit changed", _digit(answer, last.end() - 1))
    yield Variant("first digit changed", _digit(answer, first.start()))
    yield Variant("a digit appended", f"{answer[: last.end()]}7{answer[last.end() :]}")
    yield Variant("a digit put in front", f"{answer[: first.start()]}3{answer[first.start() :]}")
    value = number_of(answer)
    if value != 0:
        yield Variant("sign changed", _negated(answer))
    if _PLAIN.fullmatch(answer) and value is not None:
        number = Decimal(answer)
        if value:
            yield Variant("ten times as much", _written(number * 10))
            yield Variant("a tenth", _written(number / 10))
            yield Variant("1 % more", _written(number * Decimal("1.01")))
        yield Variant("one more", _written(number + 1))
        yield Variant("half more", _written(number + Decimal("0.5")))
        if "." not in answer:
            yield Variant("0.9 more", f"{answer}.9")
            if value:
                yield Variant("per cent in place of units", f"{answer}%")
        yield Variant("a billionth", f"{answer}e-9" if value else "1e-9")
    elif value:
        # A power of ten, a fraction: of the same magnitude, and still another number.
        wrong = float(value) * 3
        if wrong and abs(wrong) < 1e300:
            yield Variant("three times as much", _written(Decimal(repr(wrong))))
    yield Variant("a false equation", f"{_digit(answer, last.end() - 1)} = {answer}")
    if value is not None and value.denominator == 1 and 1 < abs(value) < 10**9:
        yield Variant("a false chain", f"{value - 2} = {value - 1} = {value}")
        yield Variant("an arrow from another number", f"{value - 1} \\to {value}")


def clothes(gold: Gold) -> Iterator[Variant]:
    """The same number in other forms."""
    answer = gold.answer
    yield Variant("spaces around it", f" {answer} ")
    # A bare answer may have to be all that is said.
    usual = gold.form != ANSWER
    told = f"I worked it out step by step.\n\n{gold.message}\n"
    yield Variant("after a paragraph", message=told, usual=usual)
    told = f"The answer follows.\r\n{gold.message}\r\n"
    yield Variant("Windows line ends", message=told, usual=usual)
    yield from _formula_clothes(answer)
    if not _PLAIN.fullmatch(answer):
        return
    # A verifier of whole numbers may read no points at all.
    yield Variant("a trailing dot", f"{answer}.", where=r"\d\.\d|\\")
    yield Variant("full-width digits", answer.translate(_FULL_WIDTH), usual=False)
    if answer.startswith("-"):
        minus = answer.replace("-", "−")
        yield Variant("the minus sign of typography", minus, usual=False)
    try:
        number = Decimal(answer)
    except InvalidOperation:
        return
    if number == number.to_integral_value():
        yield Variant("with .0", f"{answer.partition('.')[0]}.0", where=r"\d\.\d")
        if abs(number) >= 10_000:
            yield Variant("thousands separated", f"{int(number):,}")
    if number and abs(number.adjusted()) >= 6 and "\\boxed" in gold.form:
        mantissa = number.scaleb(-number.adjusted()).normalize()
        power = f"{mantissa:f}\\times10^{{{number.adjusted()}}}"
        yield Variant("scientific", power, where=r"\\")


def _digit(answer: str, place: int) -> str:
    """The answer with the digit at a place changed."""
    changed = str((int(answer[place]) + 4) % 10)
    return f"{answer[:place]}{changed}{answer[place + 1 :]}"


def _negated(answer: str) -> str:
    return answer[1:] if answer.startswith("-") else f"-{answer}"


def _written(number: Decimal) -> str:
    return format(number.normalize(), "f")


def _formula_changes(answer: str) -> Iterator[Variant]:
    """Formulas that denote something else: other brackets, bases, units, letters."""
    for name, pattern, other in (
        ("a pair in place of a set", r"^\\\{(.*)\\\}$", r"(\1)"),
        ("another base", r"_\{?(\d+)\}?$", lambda found: f"_{int(found[1]) + 1}"),
        ("another unit", r"\\text\{\s*(?!m\b)[a-z]+\s*\}$", r"\\text{ m}"),
        ("another letter", r"\\mathrm\{[a-z]\}", r"\\mathrm{k}"),
        ("the other end of the number line", r"\\infty", r"1000"),
        ("closed for open", r"^\(([^()]*)\)$", r"[\1]"),
    ):
        changed = re.sub(pattern, other, answer)
        if changed != answer:
            yield Variant(name, changed)


def _formula_clothes(answer: str) -> Iterator[Variant]:
    """The same formula in other notations."""
    for name, pattern, other in (
        ("a display fraction", r"\\frac", r"\\dfrac"),
        ("a fraction with a slash", r"^\\frac\{(-?\d+)\}\{(\d+)\}$", r"\1/\2"),
        ("per cent in words", r"^(-?[\d.]+)\\?%$", r"\1\\text{ percent}"),
        ("an inequality", r"^\((-?\d+),\s*\\infty\)$", r"x>\1"),
        ("an inequality with its equality", r"^\(-\\infty,\s*(-?\d+)\]$", r"x\\le \1"),
        ("an upright letter", r"\\mathrm\{e\}", "e"),
    ):
        changed = re.sub(pattern, other, answer)
        if changed != answer:
            yield Variant(name, changed, where=r"\\" if "\\" in changed else "")
    if found := re.fullmatch(r"(\d+)/(\d+)", answer):
        whole, rest = divmod(int(found[1]), int(found[2]))
        if whole and rest:
            yield Variant("a mixed number", f"{whole} {rest}/{found[2]}")
    if answer.startswith("\\{") and answer.endswith("\\}"):
        members = answer[2:-2].split(",")
        if len(members) > 1 and not any("\\" in one for one in members):
            yield Variant("members in another order", "\\{" + ", ".join(reversed(members)) + "\\}")


def _left_to_compute(answer: str) -> Iterator[Variant]:
    """The value as a computation that is still to be done."""
    value = number_of(answer)
    if value is None or value.denominator != 1 or not 3 < value < 10**9:
        return
    whole = int(value)
    factor = next((one for one in range(2, 1000) if whole % one == 0 and whole != one), None)
    if factor is not None:
        yield Variant("a product left to be computed", f"{whole // factor}\\cdot {factor}")
    yield Variant("a sum left to be computed", f"\\sum_{{k=1}}^{{{whole}}} 1")
