r"""The verdict of the math-verify library alone, as in NeMo Gym's math_with_judge.

It is the verdict of `compat: nemo`, and reads the answers that gymmesh's own readers cannot.

Invariant: a verdict judges the response. If the task or the machine prevents the judgement (for
example an empty expected answer), the result is an exception, never a reward of 0. If the response
prevents it, the verdict is 0.0 with the reason.

`judge` is pure, except for its time: symbolic comparison can run for ever. The library's own
time-outs use SIGALRM, which works only in a main thread, so they are off here. Run `judge` by
`Environment.work_on_answer`, which limits its processor time.

The steps are those of NeMo Gym's library verifier. The expected answer, without ``$…$`` or
``\(…\)``, is parsed as the content of a ``\boxed{}``. The response's boxed content is used first,
else the final expression or number of its text.
"""

from __future__ import annotations

import re
from collections import deque
from fractions import Fraction
from typing import Any, Literal

from gymmesh_resource.environments._latex import boxes
from gymmesh_resource.environments.math.answers.extraction import TAIL
from gymmesh_resource.environments.math.answers.operands import has_operands
from gymmesh_resource.environments.math.answers.words import has_words
from gymmesh_resource.environments.math.score import (
    EVIDENCE,
    ExpectedAnswerError,
    MathScore,
    unjudged,
)

_MINUS = "\N{MINUS SIGN}"
_FRAME = "\\fbox"
# Digits that numbers are compared with, and those to which exact ones must agree.
_DIGITS, _AGREE = 60, 40
_BRACE = re.compile(r"(?<!\\)[{}]")
_COMMAND = re.compile(r"\\([a-zA-Z]+)")
# Commands of the library's grammar that gymmesh's own reader leaves to it, and those of both.
_COMMANDS = {
    "int", "iint", "iiint", "oint", "lim", "sum", "prod", "partial", "det", "mod", "bmod", "pmod",
    "prime", "to", "infty", "frac", "dfrac", "tfrac", "sqrt", "binom", "left", "right",
    "mathrm", "mathbf", "mathbb", "operatorname", "cdot", "times", "pi", "theta", "alpha", "beta",
    "gamma", "delta", "epsilon", "lambda", "mu", "nu", "rho", "sigma", "tau", "phi", "omega",
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh",
    "ln", "log", "exp", "max", "min", "gcd", "lcm", "lfloor", "rfloor", "lceil", "rceil", "begin",
    "end", "vec", "hat", "bar", "overline", "quad", "pm", "mp", "le", "leq", "ge", "geq", "ne",
    "neq", "in", "cup", "cap", "setminus", "subset", "mid", "Re", "Im", "displaystyle", "circ",
    "equiv", "zeta", "Gamma", "nabla", "limits", "langle", "rangle",
}  # fmt: skip

# Commands of neither, in texts that are compared as they are written.
_SYMBOLS = {
    "aleph", "angle", "triangle", "exists", "forall", "perp", "parallel", "cong", "sim", "subseteq",
    "supset", "ell", "varphi", "psi", "chi", "xi", "eta", "kappa", "Delta", "Omega", "Sigma", "Phi",
    "mathcal", "mathfrak", "otimes", "oplus", "wedge", "vee", "neg", "mapsto", "propto", "approx",
    "emptyset", "ast", "star", "bullet", "dagger", "hbar", "iff", "Rightarrow", "implies", "text",
    "textbf", "textit", "mathit", "mathsf", "ldots", "cdots", "dots", "big", "Big",
}  # fmt: skip
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s?\{[^{}]*\}")


def judge(expected_answer: str, response_text: str) -> MathScore:
    r"""The verdict on a response, given the expected answer (LaTeX or plain text).

    If there are several boxes, the last one counts, together with the boxes joined to it as a list
    (``\boxed{1} and \boxed{2}``), as in math-verify. An empty last box is not an answer, and then
    the text outside boxes is ignored. A response that makes the library raise gets 0.0. Raises
    `ExpectedAnswerError`.
    """
    gold = _parse_expected(expected_answer)
    try:
        return _compare(gold, response_text)
    except Exception as error:  # SymPy raises all kinds for what it cannot calculate with
        check_expected(expected_answer)
        return failed(expected_answer, response_text, f"it raised {type(error).__name__}")


def check_expected(expected_answer: str) -> None:
    """Compare the expected answer with a number and itself; `ExpectedAnswerError` if that fails."""
    from sympy import Integer

    gold = _parse_expected(expected_answer)
    try:
        for one in gold:
            _equal(one, Integer(1))  # what is equal to itself by its form is not calculated
        equal = any(_equal(one, one) for one in gold)
    except Exception as error:
        raise ExpectedAnswerError(
            f"cannot be compared with itself: the comparison raised {type(error).__name__}"
        ) from None
    if not equal:
        raise ExpectedAnswerError(
            "is not equal to itself in the comparison, so no answer can match"
        )


def is_notation(text: str) -> bool:
    """Whether a text is LaTeX of known commands: at least it can be written the same again."""
    commands = set(_COMMAND.findall(text))
    return bool(commands) and commands <= _COMMANDS | _SYMBOLS and _is_balanced(text)


def may_read(text: str) -> bool:
    """Whether a text is LaTeX of which the library knows each command, without words in it and
    with both sides of each operator.
    """
    return (
        is_notation(text)
        and has_operands(text)
        and _SYMBOLS.isdisjoint(_COMMAND.findall(text))
        and not has_words(_COMMAND.sub(" ", _ENVIRONMENT.sub(" ", text)))
    )


def _is_balanced(text: str) -> bool:
    depth = 0
    for brace in _BRACE.findall(text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def compare(expected_answer: str, answer: str) -> bool:
    """Whether two answers are equivalent, if at least one of them needs the library's reader.

    Numbers are compared here, because the library rounds them to six digits at any size.
    Raises `ExpectedAnswerError`, and what SymPy raises.
    """
    gold, found = _parse_expected(expected_answer), _parse_boxed(answer)
    for one in gold:
        for candidate in found:
            numbers = _is_number(one), _is_number(candidate)
            if all(numbers):
                if _same_number(one, candidate):
                    return True
            elif not isinstance(candidate, str) and not any(numbers) and _equal(one, candidate):
                return True
    return False


def _is_number(form: Any) -> bool:
    from sympy import Expr

    return isinstance(form, Expr) and bool(form.is_number)


def _same_number(one: Any, other: Any) -> bool:
    from sympy import Float

    first, second = (_as_numbers(form).evalf(_DIGITS) for form in (one, other))
    if not (first.is_finite and second.is_finite):
        return bool(first == second)
    measured = one.has(Float) or other.has(Float)
    allowed = Fraction(1, 10**6) if measured else Fraction(1, 10**_AGREE)
    return bool(first == second or abs(first - second) <= abs(first) * allowed)


def _parse_boxed(content: str) -> list[Any]:
    from math_verify import parse

    return parse(_boxed(content), parsing_timeout=None) if content.strip() else []


def failed(expected_answer: str, response_text: str, failure: str) -> MathScore:
    """The verdict on a response that cannot be compared; `failure` says why."""
    response_text = response_text[-10 * TAIL :]  # what is shown of it need not be sought further
    content = _last_box(response_text)
    if content is None:
        return unjudged(expected_answer, response_text[-EVIDENCE:], "text", failure)
    return unjudged(expected_answer, content, "boxed", failure)


def _last_box(text: str) -> str | None:
    place = _last_place(text)
    return None if place is None else text[place]


def _compare(gold: list[Any], response_text: str) -> MathScore:
    source, found = _parse_response(response_text)
    if not found:
        return MathScore(0.0, None, _text(gold), "none" if source == "text" else source)
    for candidate in found:
        if any(_equal(one, candidate) for one in gold):
            return MathScore(1.0, _text([candidate]), _text(gold), source)
    return MathScore(0.0, _text(found), _text(gold), source)


def _equal(gold: Any, candidate: Any) -> bool:
    from math_verify import verify

    return bool(verify(_as_numbers(gold), _as_numbers(candidate), timeout_seconds=None))


def _as_numbers(parsed: Any) -> Any:
    """The expression with its percentages as plain numbers, so that 32% is 0.32 and not 32."""
    from sympy import Basic, Rational, UnevaluatedExpr

    if not isinstance(parsed, Basic) or not parsed.has(UnevaluatedExpr):
        return parsed
    hundredth = Rational(1, 100)
    return parsed.xreplace({UnevaluatedExpr(hundredth): hundredth})


def _parse_expected(expected_answer: str) -> list[Any]:
    from math_verify import LatexExtractionConfig, parse

    bare = _without_delimiters(expected_answer)
    if not bare:
        raise ExpectedAnswerError("is empty; write the right answer")
    gold: list[Any] = parse(_boxed(bare), [LatexExtractionConfig()], parsing_timeout=None)
    if not gold:
        raise ExpectedAnswerError(f"is {bare[:100]!r}, which cannot be read as mathematics")
    return gold


def _parse_response(text: str) -> tuple[Literal["boxed", "text"], list[Any]]:
    from math_verify import parse

    text = text.replace(_MINUS, "-")  # the library knows it in LaTeX only
    content = _box_content(text)
    if content is not None:
        return "boxed", _parse_boxed(content)
    return "text", parse(text[-TAIL:], parsing_timeout=None)


def _box_content(text: str) -> str | None:
    """What the last complete box, or group of boxes, holds; None when there is none."""
    place = _last_place(text)
    if place is None:
        return None
    from latex2sympy2_extended.math_normalization import extract_boxed_content

    # The library would take a frame for a box, where it stands beside one.
    before = text[: place.start].replace(_FRAME, " " * len(_FRAME))
    content: str = extract_boxed_content(before + text[place.start : place.stop + 1], mode="last")
    return content


def _last_place(text: str) -> slice | None:
    """That of the last box that is closed; one without its end was cut off, and is skipped."""
    last = deque(boxes(text), maxlen=1)
    return last[0] if last else None


def _boxed(content: str) -> str:
    return f"\\boxed{{{content}}}"


def _without_delimiters(answer: str) -> str:
    """An answer without the dollars or ``\\(…\\)`` around it, which no box may contain."""
    bare = answer.strip()
    if bare.startswith("\\(") and bare.endswith("\\)"):
        bare = bare[2:-2].strip()
    if len(bare) > 1 and bare.startswith("$") and bare.endswith("$"):
        bare = bare[1:-1].strip()
    return bare


def _text(parsed: list[Any]) -> str:
    """The first form of an answer that can be written, SymPy's before the original text."""
    for form in parsed:
        try:
            return str(form)[:EVIDENCE]
        except Exception:  # SymPy's printers raise many kinds, for numbers too long to print too
            continue
    return "an answer that cannot be printed"
