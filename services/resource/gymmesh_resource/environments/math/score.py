"""What a verdict on a mathematical answer is, and the error of a task that allows none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Characters of an answer kept as evidence.
EVIDENCE = 1_000


class ExpectedAnswerError(ValueError):
    """The task's expected answer cannot be judged against; the task is wrong."""


@dataclass(frozen=True, slots=True)
class MathScore:
    r"""The judgement of one response.

    `reward`: 1.0 if the answer is equivalent to the expected one, else 0.0.
    `extracted`: the answer as it was understood (or the text itself when it could not be
    parsed), at most 1,000 characters; None when the response has no answer.
    `expected`: the expected answer as it was understood.
    `source`: where the answer stood: in a ``\boxed{}``, in the text, or nowhere.
    `failure`: why a response could not be compared, which makes it worth 0.0; else empty.
    `compared`: how, where the two were compared: what was rounded, coerced, or not looked at.
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
