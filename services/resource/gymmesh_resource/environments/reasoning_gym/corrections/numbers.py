"""Numbers: not finite, rounded, among words, several of them. Pure but for the library's scorer."""

from __future__ import annotations

import cmath
import json
import re
from fractions import Fraction
from typing import Any, Final

from gymmesh_resource.environments._claims import gives
from gymmesh_resource.environments.reasoning_gym.corrections.rounding import written_decimal
from gymmesh_resource.environments.reasoning_gym.corrections.scorer import (
    NOT_RIGHT,
    Scorer,
    capped,
)

_SIGNS: Final = str.maketrans({"−": "-", "–": "-"})
_NUMBER: Final = re.compile(r"(?<![\w.])-?[0-9][0-9,]*(?:\.[0-9]+)?")
# 405x is a product, 405e1 another number, ~~405~~ is struck out.
_NOT_PLAIN: Final = re.compile(r"[0-9](?:[a-fi-ln-rt-z](?![a-z/^])|e[0-9])|~~", re.IGNORECASE)
_POINT: Final = re.compile(r"[\s$(\[]*([-+\d.eE]+)\s*,\s*([-+\d.eE]+)[\s$)\].]*")
_FRACTION: Final = re.compile(
    r"[\s$(\[]*(?:\\[dt]?frac\s*\{\s*\d+\s*\}\s*\{\s*\d+\s*\}|\d+\s*/\s*\d+)[\s$)\].]*"
)
_PERCENT: Final = re.compile(r"%|\bper ?cent", re.IGNORECASE)
# What the library gives for a number that is not the expected one.
_GUESS: Final = 0.01
# Significant digits of a chance that is not exact, and the exactness of the expected answer.
_CHANCE_DIGITS: Final = 4
_CHANCE_EXACT: Final = Fraction(1, 10**9)
_ROOT: Final = Fraction(5, 10**5) + Fraction(1, 10**9)
_THREE_DIGITS: Final = Fraction(5, 10**4) + Fraction(1, 10**9)


def finite(answer: str) -> bool:
    """Whether an answer is anything but a number that is infinite or none at all, such as `nan`."""
    text = "".join(answer.split()).strip("()[]").lower()
    for form in (text, text.replace("i", "j"), re.sub("i$", "j", text)):
        try:
            if not cmath.isfinite(complex(form)):
                return False
        except (ValueError, OverflowError):
            continue
    return re.fullmatch(r"[-+]?(?:nan|inf|infinity|oo|zoo)[ij]?", text) is None


def coin_flip(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer takes any number within 0.0001, and `0` for the beginning of each."""
    wanted, exactness = _chance(entry)
    text = answer.strip().replace(",", "")
    try:
        given = Fraction(text)
    except (ValueError, ZeroDivisionError):
        return 0.0
    written = written_decimal(text)
    if abs(given - wanted) <= exactness * abs(wanted):
        return 1.0
    if written is not None and written.digits >= _CHANCE_DIGITS and written.rounds(wanted):
        return 1.0
    shown = (f"{float(given):.10g}", f"{float(wanted):.10g}")
    pairs = zip(*shown, strict=False)
    alike = next(
        (at for at, (left, right) in enumerate(pairs) if left != right), min(map(len, shown))
    )
    return min(NOT_RIGHT, alike / len(shown[1]))


def _chance(entry: dict[str, Any]) -> tuple[Fraction, Fraction]:
    """The chance, and how exactly it is known: its answer is written with ten digits."""
    rational = entry["metadata"].get("rational")
    if rational:
        return Fraction(rational["numerator"], rational["denominator"]), Fraction(0)
    wanted = Fraction(str(entry["answer"]).replace(",", ""))
    return wanted, _CHANCE_EXACT


def rounded(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer takes what is near: other last digits, digits put behind the right ones. What is
    no number is worth nothing.
    """
    value = float(scorer(answer=answer, entry=entry))
    wanted, given = written_decimal(str(entry["answer"])), written_decimal(answer)
    if wanted is None or given is None:
        return 0.0
    if given.value == wanted.value:
        return 1.0
    # The expected answer may be rounded itself: what has more digits than it, cannot be judged.
    right = given.value != 0 and given.place > wanted.place and given.rounds(wanted.value)
    return value if right else capped(value)


def number_format(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer takes what is within 0.01 of the candidate, such as another one."""
    given = written_decimal(answer.replace(",", ""))
    solution = entry["metadata"]["solution"]
    # Candidates have three decimals; as sums of floats they may have more, as they are written.
    forms = (str(solution), *(format(solution, form) for form in (".3f", "f", ".15e")))
    return float(given is not None and given.value in map(Fraction, forms))


def number_sorting(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer takes numbers that are off by one."""
    value = float(scorer(answer=answer, entry=entry))
    if value < 1:
        return value
    given = json.loads(answer.replace("'", '"'))
    wanted = entry["metadata"]["sorted_numbers"]
    return value if list(map(float, given)) == list(map(float, wanted)) else 0.0


def polynomial_equations(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer skips all but numbers, so that any words are right where there is no root; and
    roots with more than the four digits asked for earn less than 1.
    """
    parts = answer.strip().strip("\"'").split(",")
    given = [written_decimal(one) for one in parts] if parts != [""] else []
    values = sorted(one.value for one in given if one is not None)
    wanted = sorted(Fraction(str(one)) for one in entry["metadata"]["real_solutions"])
    if len(values) == len(given) == len(wanted) and all(map(_is_root, values, wanted)):
        return 1.0
    return capped(scorer(answer=answer, entry=entry)) if values else 0.0


def _is_root(given: Fraction, wanted: Fraction) -> bool:
    """Whether a root is right to four digits; 0 is 0 alone."""
    return given == wanted or (wanted != 0 and abs(given - wanted) <= _ROOT)


def advanced_geometry(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer skips what stands behind two coordinates: a denial, more of them. It takes angles
    that are right to two digits, where three are asked for.
    """
    value = float(scorer(answer=answer, entry=entry))
    if entry["metadata"]["task_type"] == "orthocenter":
        return value if _POINT.fullmatch(answer.translate(_SIGNS)) else capped(value)
    given, wanted = (written_decimal(one.replace("°", "")) for one in (answer, entry["answer"]))
    if given is None or wanted is None:
        return capped(value)
    return 1.0 if abs(given.value - wanted.value) <= _THREE_DIGITS else capped(value)


def gsm_symbolic(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer takes the first number of a text, without its sign, and denied ones. A percentage
    is no number of things.
    """
    if _PERCENT.search(answer) and not _PERCENT.search(entry["question"]):
        return _GUESS
    text = answer.translate(_SIGNS)
    found = list(_NUMBER.finditer(text))
    numbers = {Fraction(one[0].replace(",", "")) for one in found}
    if len(numbers) != 1:  # none, or several guesses
        return 0.0
    if not all(gives(text, *one.span()) for one in found):
        return 0.0
    if _NOT_PLAIN.search(text):
        return _GUESS
    return 1.0 if numbers == {Fraction(str(entry["answer"]).replace(",", ""))} else _GUESS


def fraction_simplification(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer skips what stands behind the fraction: a denial, another guess."""
    value = float(scorer(answer=answer, entry=entry))
    return value if _FRACTION.fullmatch(answer) else capped(value)
