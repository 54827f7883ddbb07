"""Scores where the library's scorer is not right, by dataset. Pure but for the scorer it is given.

Each correction is called with the library's scorer, the answer and the entry. It gives 1.0 for a
right answer only; what the library gives a bad one, as for a good try, it leaves below that.
"""

from __future__ import annotations

import ast
import cmath
import operator
import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, TypeAlias

from gymmesh_resource.environments._claims import gives

Scorer: TypeAlias = Callable[..., Any]
Correction: TypeAlias = Callable[[Scorer, str, dict[str, Any]], Any]

# The most that an answer which is not right gets.
_BAD = 0.99
# The most that the library gives for an expression in a game of numbers that misses.
_TRIED = 0.05
_EXPRESSION = 500
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-"})
_NUMBER = re.compile(r"(?<![\w.])-?[0-9][0-9,]*(?:\.[0-9]+)?")
_MOVES = re.compile(r"[LRUD\s,]*", re.IGNORECASE)
# Half a unit of the fourth digit, of the smallest number with four digits.
_FOUR_DIGITS = 5e-4


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


def _arc(scorer: Scorer, answer: str, entry: dict[str, Any]) -> Any:
    """The scorer compares with tuples, which JSON made lists: no answer could be right."""
    metadata = dict(entry["metadata"])
    metadata["output"] = tuple(tuple(row) for row in metadata["output"])
    return scorer(answer=answer, entry={**entry, "metadata": metadata})


def _halting(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer compares the truth of two strings, so that all answers but "" would be right."""
    return float(answer.strip().strip(".").lower() == str(entry["answer"]).lower())


def _puzzle24(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer asks for four numbers, not for those given, and cuts 24.5 down to 24."""
    return float(_makes(answer, 24, entry))


def _countdown(scorer: Scorer, answer: str, entry: dict[str, Any]) -> Any:
    """The scorer takes a value that is off by a part in 100,000."""
    if _makes(answer, entry["metadata"]["target"], entry):
        return 1.0
    return min(_TRIED, scorer(answer=answer, entry=entry))


def _makes(answer: str, target: int, entry: dict[str, Any]) -> bool:
    """Whether an expression makes the target of the entry's numbers, each used once."""
    try:
        value, numbers = arithmetic(answer)
    except (ValueError, SyntaxError, ZeroDivisionError, RecursionError):
        return False
    return value == target and sorted(numbers) == sorted(entry["metadata"]["numbers"])


def _coin_flip(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer takes any number within 0.0001, and `0` for the beginning of each."""
    try:
        given = Fraction(answer.strip().replace(",", ""))
        wanted = Fraction(entry["answer"].replace(",", ""))
    except (ValueError, ZeroDivisionError):
        return 0.0
    if abs(given - wanted) <= _FOUR_DIGITS * abs(wanted):
        return 1.0
    shown = (f"{float(given):.10g}", f"{float(wanted):.10g}")
    pairs = zip(*shown, strict=False)
    alike = next(
        (at for at, (left, right) in enumerate(pairs) if left != right), min(map(len, shown))
    )
    return min(_BAD, alike / len(shown[1]))


def _sokoban(scorer: Scorer, answer: str, entry: dict[str, Any]) -> Any:
    """The scorer skips what is no move, so that a text may solve a puzzle by its letters."""
    if not _MOVES.fullmatch(answer):
        return 0.0
    return scorer(answer="".join(re.findall(r"\w", answer)).upper(), entry=entry)


def _gsm_symbolic(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer takes the first number of a text, without its sign, and denied ones."""
    text = answer.translate(_SIGNS)
    found = list(_NUMBER.finditer(text))
    numbers = {Fraction(one[0].replace(",", "")) for one in found}
    if len(numbers) != 1:  # none, or several guesses
        return 0.0
    if not all(gives(text, *one.span()) for one in found):
        return 0.0
    return 1.0 if numbers == {Fraction(str(entry["answer"]).replace(",", ""))} else 0.01


def _kakurasu(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer skips what is not a digit: words that deny the grid, too."""
    value = float(scorer(answer=answer, entry=entry))
    return min(value, _BAD) if re.search(r"[^\W\d_]", answer) else value


def _fraction(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer skips what stands behind the fraction: a denial, another guess."""
    value = float(scorer(answer=answer, entry=entry))
    beside = re.sub(r"\\[dt]?frac(?![a-zA-Z])", "", answer)
    return min(value, _BAD) if re.search(r"[^\W\d_]", beside) else value


def _same_words(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """The scorer overlooks words beside the right ones: denials, guesses, appended letters."""
    value = float(scorer(answer=answer, entry=entry))
    return value if _words(answer) == _words(str(entry["answer"])) else min(value, _BAD)


def _words(text: str) -> list[str]:
    return sorted(re.findall(r"\w+", text.casefold()))


def same_number(answer: str, expected: str) -> bool:
    """Whether an answer is the expected number, written otherwise: digits and minus of another
    form, a dot at the end, or .0.
    """
    if re.fullmatch(r"-?[0-9]+(?:\.[0-9]+)?", expected) is None:
        return False
    plain = unicodedata.normalize("NFKC", answer).strip().replace("−", "-").rstrip(".")
    return expected in (plain, re.sub(r"\.0+$", "", plain))


CORRECTIONS: Final[dict[str, Correction]] = {
    "arc_agi": _arc,
    "coin_flip": _coin_flip,
    "countdown": _countdown,
    "fraction_simplification": _fraction,
    "game_of_life_halting": _halting,
    "gsm_symbolic": _gsm_symbolic,
    "kakurasu": _kakurasu,
    "knights_knaves": _same_words,
    "puzzle24": _puzzle24,
    "rearc": _arc,
    "sokoban": _sokoban,
    "spell_backward": _same_words,
}

_OPERATORS: Final[dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def arithmetic(text: str) -> tuple[Fraction, list[int]]:
    """The exact value of an expression of whole numbers and `+ - * /`, and its numbers.

    Raises ValueError, SyntaxError, ZeroDivisionError or RecursionError for anything else.
    """
    if len(text) > _EXPRESSION:
        raise ValueError("too long")
    numbers: list[int] = []

    def value(node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                numbers.append(number)
                return Fraction(number)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
        raise ValueError("not plain arithmetic")

    return value(ast.parse(text.translate(_SIGNS).strip(), mode="eval").body), numbers
