r"""Whether a response answers a mathematical question.

Invariant: a verdict judges the response. If the task or the machine prevents the judgement (for
example an expected answer that is a sentence), the result is an exception, never a reward of 0. If
the response prevents it, the verdict is 0.0 with the reason.

Both answers are parsed into forms (`reading`), which `comparison` compares. The math-verify library
gets the answers that the readers can't parse, such as an integral. The library may run for ever:
run `judge` by `Environment.work_on_answer`, which limits its processor time.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import lru_cache

from gymmesh_resource.environments._number_words import number_of_words
from gymmesh_resource.environments.math import library
from gymmesh_resource.environments.math.answers import words
from gymmesh_resource.environments.math.answers.comparison import FormComparison
from gymmesh_resource.environments.math.answers.evaluation import (
    NoValue,
    ValueTooLarge,
    approximate,
    exact,
    is_measured,
    symbols,
)
from gymmesh_resource.environments.math.answers.extraction import FoundAnswer, find_answer
from gymmesh_resource.environments.math.answers.forms import (
    Assigned,
    Form,
    Region,
    Relation,
    Scalar,
    Words,
    shown,
)
from gymmesh_resource.environments.math.answers.nodes import Unreadable, walk
from gymmesh_resource.environments.math.answers.notation import clean, has_relation
from gymmesh_resource.environments.math.answers.question import (
    has_commands_to_compute,
    values_of,
    wants_value,
)
from gymmesh_resource.environments.math.answers.reading import Untrue, read
from gymmesh_resource.environments.math.score import (
    EVIDENCE,
    ExpectedAnswerError,
    MathScore,
    unjudged,
)


@dataclass(frozen=True, slots=True)
class ExpectedForms:
    """The expected answer: its text, and its possible meanings; none if only the library can read
    it.
    """

    text: str
    forms: tuple[Form, ...]


def warm_up() -> None:
    """Import the libraries, build their parsers and judge once, so that later calls are quick."""
    # With its time-outs off it warns that the caller must bound it: the pool does.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    library.judge("1", "\\boxed{\\frac{2}{2}}")
    judge("1", "\\boxed{\\frac{2}{2}}")


@lru_cache(maxsize=1024)
def read_expected(text: str) -> ExpectedForms:
    """Read the expected answer. Pure and quick. Raises `ExpectedAnswerError`."""
    if not text.strip().strip("$"):
        raise ExpectedAnswerError("is empty; write the right answer")
    if words.is_sentence(text) and number_of_words(text.strip()) is None:
        raise ExpectedAnswerError(
            f"{text[:100]!r} is a sentence, and an answer can hardly match a sentence; write a "
            "number, an expression or a word, or set the option judge: true"
        )
    try:
        forms = read(text)
    except Untrue as error:
        raise ExpectedAnswerError(f"{text[:100]!r}: {error}. Write only the final answer") from None
    except Unreadable as error:
        if not library.is_notation(text):
            raise ExpectedAnswerError(f"{text[:100]!r} cannot be read: {error}") from None
        return ExpectedForms(text, ())
    if len(forms) > 1 and isinstance(forms[0], Words) and not _is_reduced(forms[1]):
        # 14:30 is a time of day, of which 7:15 is another; a word is no product of its letters.
        del forms[1:]
    for form in forms:
        _check_value(text, form)
    return ExpectedForms(text, tuple(forms))


def judge(
    expected_answer: str, response_text: str, prompt: str = "", evaluated: bool | None = None
) -> MathScore:
    r"""The verdict on a response, given the expected answer (LaTeX or plain text).

    If there are several boxes, the last one counts, together with the boxes joined to it as a list
    (``\boxed{1} and \boxed{2}``). An empty last box is not an answer, and then the text outside
    boxes is ignored.

    evaluated: whether an answer that is not computed, or that is in the prompt, gets 0.0. None:
    true if a whole number or a decimal is expected.

    Raises `ExpectedAnswerError`.
    """
    expected = read_expected(expected_answer)
    found = find_answer(response_text)
    if evaluated is None:
        evaluated = any(map(wants_value, expected.forms))
    asked = prompt if evaluated else None
    try:
        score = _judge(expected, found, asked)
    except (ArithmeticError, ValueError, RecursionError) as error:
        if isinstance(error, ExpectedAnswerError):
            raise
        failure = f"the comparison raised {type(error).__name__}"
        score = unjudged(expected_answer, found.texts[0], found.source, failure)
    if not found.cut:
        return score
    note = f"the first {found.cut} characters of the response were not searched"
    return _noted(score, note)


def check_expected(expected_answer: str) -> None:
    """Compare the expected answer with itself. Raises `ExpectedAnswerError` if they differ."""
    expected = read_expected(expected_answer)
    if not expected.forms:
        library.check_expected(expected_answer)


def _judge(expected: ExpectedForms, found: FoundAnswer, asked: str | None) -> MathScore:
    wanted = " or ".join(dict.fromkeys(map(shown, expected.forms)))[:EVIDENCE] or expected.text
    problem = ""
    wants_words = any(isinstance(form, Words) for form in expected.forms)
    for text in found.texts:
        try:
            forms = read(text)
        except Untrue as error:
            return MathScore(0.0, text[:EVIDENCE], wanted, found.source, str(error))
        except Unreadable as error:
            problem = problem or str(error)
            continue
        if isinstance(forms[0], Words) and not wants_words and text != found.texts[-1]:
            continue  # a whole sentence, which may have a number in it
        return _compare(expected, forms, text, wanted, found, asked)
    if not found.texts:
        return MathScore(0.0, None, wanted, found.source)
    if found.source == "text" and not any("\\" in text for text in found.texts):
        return MathScore(0.0, None, wanted, "none")
    return _by_library(expected, found.texts[0], wanted, found, asked, problem)


def _compare(
    expected: ExpectedForms,
    forms: list[Form],
    text: str,
    wanted: str,
    found: FoundAnswer,
    asked: str | None,
) -> MathScore:
    """The verdict on an answer that was read."""
    if not expected.forms:
        return _by_library(expected, text, wanted, found, asked, "")
    likely = forms[:1] if isinstance(forms[0], Words) else forms
    answer = " or ".join(dict.fromkeys(map(shown, likely)))[:EVIDENCE]
    failure = ""
    comparison = FormComparison()
    for wanted_form in expected.forms:
        for form in forms:
            try:
                if not comparison.equal(wanted_form, form):
                    continue
                value = form if asked is None else values_of(form, asked)
                if value is None or not comparison.equal(wanted_form, value):
                    failure = "the answer still has to be computed, or is in the prompt"
                    continue
            except Unreadable:
                return _by_library(expected, text, wanted, found, asked, "")
            compared = _how(wanted_form, form)
            return MathScore(1.0, answer, wanted, found.source, "", compared)
    return MathScore(0.0, answer, wanted, found.source, failure)


def _by_library(
    expected: ExpectedForms,
    text: str,
    wanted: str,
    found: FoundAnswer,
    asked: str | None,
    problem: str,
) -> MathScore:
    """The verdict of math-verify, where one of the two is for it to read."""
    shown_text = text[:EVIDENCE]
    if not expected.forms and _written(text) == _written(expected.text):
        return MathScore(1.0, shown_text, wanted, found.source, "", ("as text",))
    unread = ([text] if problem else []) + ([] if expected.forms else [expected.text])
    wants_words = any(isinstance(form, Words) for form in expected.forms)
    if wants_words or not all(library.may_read(clean(one)) for one in unread):
        return MathScore(0.0, shown_text, wanted, found.source, problem)
    if expected.forms and (refusal := _not_for_library(expected, clean(text), asked)):
        return MathScore(0.0, shown_text, wanted, found.source, refusal)
    try:
        equal = library.compare(expected.text, text)
    except ExpectedAnswerError:
        raise
    except Exception as error:  # SymPy raises all kinds for what it cannot calculate with
        library.check_expected(expected.text)
        failure = f"math-verify raised {type(error).__name__}"
        return MathScore(0.0, shown_text, wanted, found.source, failure)
    compared = ("by math-verify, which may simplify and round",)
    return MathScore(float(equal), shown_text, wanted, found.source, "", compared)


def _not_for_library(expected: ExpectedForms, text: str, asked: str | None) -> str:
    """Why the library is not asked about an answer, where the expected one was read; else ""."""
    if not any(map(_is_relation, expected.forms)) and has_relation(text):
        return "a relation is not a value"
    if not has_commands_to_compute(text):
        # The library leaves out what it cannot place, and compares the rest.
        return "the answer cannot be read"
    return "" if asked is None else "the answer still has to be computed"


def _is_relation(form: Form) -> bool:
    return isinstance(form, Assigned | Relation | Region)


def _is_reduced(form: Form) -> bool:
    """Whether a ratio is in its lowest terms."""
    parts = form.node.args if isinstance(form, Scalar) else ()
    return math.gcd(*(int(part.value) for part in parts)) == 1


def _written(text: str) -> str:
    return clean(text).replace(" ", "")


def _check_value(text: str, form: Form) -> None:
    """Raises `ExpectedAnswerError` for a number without a value, such as 1/0."""
    if isinstance(form, Scalar) and not symbols(form.node):
        try:
            approximate(form.node)
        except (ValueTooLarge, Unreadable):
            return
        except NoValue as error:
            raise ExpectedAnswerError(f"{text[:100]!r} is not a number: {error}") from None


def _how(expected: Form, answer: Form) -> tuple[str, ...]:
    """What the comparison rounded, coerced or left out, one clause each."""
    notes: list[str] = []
    if isinstance(answer, Assigned) and not isinstance(expected, Assigned | Relation):
        notes.append(f"the name {answer.name[:50]} was ignored")
        answer = answer.value
    if isinstance(expected, Assigned):
        expected = expected.value
    if isinstance(expected, Words):
        return (*notes, "as text")
    if not isinstance(expected, Scalar) or not isinstance(answer, Scalar):
        return tuple(notes)
    if (expected.unit is None) != (answer.unit is None):
        notes.append("only one answer has a unit, which was ignored")
    if symbols(expected.node) | symbols(answer.node):
        return (*notes, "at points of the real line")
    if is_measured(expected.node) or is_measured(answer.node):
        if exact(expected.node) != exact(answer.node) or exact(answer.node) is None:
            notes.append("rounded to a relative difference of 1e-6 or the expected digits")
    elif any(one.op not in ("number", "neg") for one in walk(answer.node)):
        notes.append("by exact value")
    return tuple(notes)


def _noted(score: MathScore, note: str) -> MathScore:
    return MathScore(
        score.reward, score.extracted, score.expected, score.source, score.failure,
        (*score.compared, note),
    )  # fmt: skip
