"""Makes cases/reasoning_gym.jsonl: what is right is computed here, exactly, from the puzzle alone.

Run it as `.venv/bin/python -m tests.verdicts.make_reasoning_gym`.
"""

# ruff: noqa: E501  # a line a puzzle reads better than its parts

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from tests.verdicts.case_files import case, write

EXACT = "exact arithmetic"
# Forms of a whole number that say the same.
NUMBERS = [
    "<answer>{}</answer>",
    "\\boxed{{{}}}",
    "<answer> {} </answer>",
    "So it is \\boxed{{ {} }}.",
]
# What no puzzle is to be won by, but where it is the answer.
JUNK = ["nan", "inf", "-inf", "nanj", "1e999", "", "x", "None", "[]", "I don't know"]
# Numbers, an expression that makes 24 of them, and its value in Python's own fractions.
GAMES_OF_24 = [
    ([9, 9, 3, 8], "9*8/(9-3*2)", False),
    ([9, 9, 3, 8], "9/9*3*8", True),
    ([9, 9, 3, 8], "3*8*9/9", True),
    ([9, 9, 3, 8], "8 * 3 + 9 - 9", True),
    ([9, 9, 3, 8], "8 × 3 + 9 − 9", True),
    ([9, 9, 3, 8], "(9-9)+3*8", True),
    ([9, 9, 3, 8], "1*2*3*4", False),
    ([9, 9, 3, 8], "3*8", False),
    ([9, 9, 3, 8], "24", False),
    ([9, 9, 3, 8], "9+9+3+8", False),
    ([9, 9, 3, 8], "3*8+9-9+9-9", False),
    ([3, 3, 8, 8], "8/(3-8/3)", True),
    ([3, 3, 8, 8], "8 ÷ (3 − 8 ÷ 3)", True),
    ([3, 3, 8, 8], "8*3*(8-3)/5", False),
    ([3, 3, 8, 8], "8+8+3+3", False),
    ([7, 7, 2, 1], "7*7/2*1", False),
    ([1, 5, 5, 5], "5*(5-1/5)", True),
    ([1, 5, 5, 5], "(5-1/5)*5", True),
    ([1, 5, 5, 5], "5*5-1*1", False),
    ([5, 5, 1, 1], "5*5-1*1", True),
    ([5, 5, 1, 1], "5**2-1*1", False),
    ([4, 6, 1, 1], "6*4*1*1", True),
    ([4, 6, 2, 2], "6*4*1*1", False),
    ([4, 6, 2, 2], "4*6*2/2", True),
    ([4, 6, 2, 2], "46-22", False),
]


def _row(dataset: str, answer: str | None, **metadata: Any) -> dict[str, Any]:
    return {
        "question": "?",
        "answer": answer,
        "metadata": {"source_dataset": dataset, **metadata},
    }


def _numbers() -> Iterator[dict[str, Any]]:
    """Sums, divisors, multiples: the number in several forms, and others."""
    chance = random.Random(1)
    for dataset, name in (("chain_sum", "sum"), ("gcd", "divisor"), ("lcm", "multiple")):
        for _ in range(7):
            left, right = chance.randint(20, 999), chance.randint(20, 999)
            made = {"sum": left + right, "divisor": math.gcd(left, right)}
            wanted = made.get(name, math.lcm(left, right))
            row = _row(dataset, str(wanted))
            for form in chance.sample(NUMBERS, 3):
                yield case(row, form.format(wanted), 1.0, name, source=EXACT, clothes=True)
            for other in (wanted + 1, -wanted, wanted * 10):
                if dataset == "chain_sum" and str(wanted) in str(other):
                    continue  # the library gives something for a good try
                if str(wanted) not in str(other):
                    why = f"not the {name}"
                    yield case(row, f"<answer>{other}</answer>", 0.0, why, source=EXACT)
    row = _row("chain_sum", "1203")
    for form in ("1,203", "+1203", "1203.0", "01203", "1203.00"):
        yield case(row, f"<answer>{form}</answer>", 1.0, "the number", clothes=True)
    for junk in JUNK:
        yield case(row, f"<answer>{junk}</answer>", 0.0, "no number")
    for text, reward in (
        ("\\boxed{7} \\boxed{1203}", 1.0),
        ("\\boxed{1203} \\boxed{7}", 0.0),
        ("<answer>7</answer> <answer>1203</answer>", 1.0),
        ("<answer>1203</answer> <answer>7</answer>", 0.0),
    ):
        yield case(row, text, reward, "the last answer counts")


def _games() -> Iterator[dict[str, Any]]:
    """Expressions for puzzle24 and countdown; of the latter the library gives 0.05 for a bad one."""
    for numbers, expression, right in GAMES_OF_24:
        row = _row("puzzle24", "?", numbers=numbers)
        more = {"clothes": True} if right else {}
        yield case(
            row, f"<answer>{expression}</answer>", float(right), "makes 24 of the numbers"
            if right else "does not make 24 of the numbers", source=EXACT, **more,
        )  # fmt: skip
    chance = random.Random(2)
    for _ in range(12):
        a, b, c = (chance.randint(2, 40) for _ in range(3))
        row = _row("countdown", "?", numbers=[a, b, c], target=a * b - c)
        for expression in (
            f"{a}*{b}-{c}",
            f"{b} * {a} - {c}",
            f"-{c}+{a}*{b}",
            f"({a})*({b})-({c})",
        ):
            yield case(row, f"<answer>{expression}</answer>", 1.0, "makes the target", source=EXACT,
                       clothes=True)  # fmt: skip
        for expression in (f"{a}*{b}-{c}+{c}-{c}", f"{a}*{b}", f"{a * b - c}", f"{a}*{b}+{c}"):
            yield case(row, f"<answer>{expression}</answer>", 0.05, "other numbers", source=EXACT)


def _complex() -> Iterator[dict[str, Any]]:
    chance = random.Random(3)
    for _ in range(5):
        real, imaginary = chance.randint(-9, 9), chance.randint(1, 9)
        row = _row("complex_arithmetic", f"{real} + {imaginary}i", result=[real, imaginary])
        for form in (f"{real}+{imaginary}i", f"{real} + {imaginary}i", f"{real}.0 + {imaginary}i"):
            yield case(
                row, f"<answer>{form}</answer>", 1.0, "the number", source=EXACT, clothes=True
            )
        for junk in ("nan", "nan+nanj", "inf", "nani", "infj", "-inf+infj", "NaN", f"{real}+nanj"):
            yield case(row, f"<answer>{junk}</answer>", 0.0, "not finite")


def _chances() -> Iterator[dict[str, Any]]:
    """The chance of so many heads; the library gives a part for the first digits."""
    for tosses, heads in ((4, 2), (5, 1), (6, 3), (8, 4), (12, 1)):
        chance = Fraction(math.comb(tosses, heads), 2**tosses)
        row = _row("coin_flip", f"{float(chance):.10g}")
        for form in (str(chance), f"{float(chance):.6g}", f"{float(chance):.10g}", f"{chance * 1}"):
            yield case(row, f"<answer>{form}</answer>", 1.0, "the chance", source=EXACT,
                       clothes=True)  # fmt: skip
        for other in ("nan", "heads", "1/0"):
            yield case(row, f"<answer>{other}</answer>", 0.0, "no chance")


def _texts() -> Iterator[dict[str, Any]]:
    for word in ("bread", "stone", "harbour", "level", "Quarter"):
        row = _row("spell_backward", word[::-1], word=word)
        right = word[::-1]
        for form in (
            f"<answer>{right}</answer>",
            f"\\boxed{{{right}}}",
            f"<answer>\n{right}\n</answer>",
        ):
            yield case(row, form, 1.0, "backward", source="a second implementation", clothes=True)
    for answer, other in (("True", "False"), ("False", "True")):
        row = _row("game_of_life_halting", answer)
        for form in (answer, answer.lower(), f"{answer}."):
            yield case(row, f"<answer>{form}</answer>", 1.0, "the word", clothes=True)
        for wrong in (other, "yes", "maybe", "True or False", "nan"):
            yield case(row, f"<answer>{wrong}</answer>", 0.0, "not the word")
    for text, reward in (
        ("22", 1.0), ("$22", 1.0), ("22 slices", 1.0), ("22.0", 1.0), ("They ate 22.", 1.0),
        ("-22", 0.01), ("23", 0.01), ("2.2", 0.01), ("22 or 23", 0.0), ("many", 0.0), ("nan", 0.0),
    ):  # fmt: skip
        more = {"clothes": True} if reward == 1.0 else {}
        yield case(
            _row("gsm_symbolic", "22"), f"<answer>{text}</answer>", reward, "a story", **more
        )


def _refused() -> Iterator[dict[str, Any]]:
    for row, why in (
        (_row("no_such_dataset", "1"), "no such dataset"),
        (_row("composite", "1"), "a mixture of datasets"),
        ({"question": "?", "answer": "1", "metadata": {}}, "no dataset"),
        (_row("intermediate_integration", "3*Integral(x**3, x) + C"), "an integral left as it is"),
        ({"answer": "1", "metadata": {"source_dataset": "gcd"}}, "no question"),
    ):
        yield case(row, "1", None, why)


if __name__ == "__main__":
    parts = (_numbers, _games, _complex, _chances, _texts, _refused)
    write("reasoning_gym", (one for part in parts for one in part()))
