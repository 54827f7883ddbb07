"""The verdict on a mathematical answer, and the error of a task that can't be judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Characters of an answer kept as evidence.
EVIDENCE = 1_000


class ExpectedAnswerError(ValueError):
    """No answer can be compared with the task's expected answer: the task is wrong."""


@dataclass(frozen=True, slots=True)
class MathScore:
    r"""The judgement of one response.

    `reward`: 1.0 if the answer is equivalent to the expected one, else 0.0.
    `extracted`: the parsed answer, or its text if it could not be parsed, at most 1,000 characters;
    None if the response has no answer.
    `expected`: the parsed expected answer.
    `source`: where the answer was found: in a ``\boxed{}``, in the text, or nowhere.
    `failure`: why the response could not be compared and gets 0.0; otherwise empty.
    `compared`: how the two were compared: what was rounded, converted, or ignored.
    """

    reward: float
    extracted: str | None
    expected: str
    source: Literal["boxed", "text", "none"]
    failure: str = ""
    compared: tuple[str, ...] = ()


def unjudged(
    expected_answer: str, answer: str | None, source: Literal["boxed", "text", "none"], failure: str
) -> MathScore:
    """The verdict on a response that cannot be compared; `failure` says why."""
    shown = None if answer is None else answer[:EVIDENCE]
    return MathScore(0.0, shown, expected_answer[:EVIDENCE], source, failure)
