"""Questions with a short answer. Task rows are NeMo Gym's string_match rows."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec

from gymmesh_resource import Environment, Rollout, Session, Task, TaskInvalid, Verdict
from gymmesh_resource.environments.row_fields import filled_text, one_of
from gymmesh_resource.environments.string_match import nemo
from gymmesh_resource.environments.string_match.extraction import MODES, ExtractionMode, extract
from gymmesh_resource.environments.string_match.verdict import sameness
from gymmesh_resource.expected import ANSWER, Expected, is_number

# Characters of an answer kept as evidence, and of those in an explanation.
EVIDENCE = 1_000
_EXPLAINED = 100
# Characters of a response that are judged on the event loop.
LONG = 20_000
# How a policy writes its answer, by mode.
_FORMS: Mapping[ExtractionMode, str] = {
    "boxed": f"The answer is \\boxed{{{ANSWER}}}.",
    "final_answer": f"Final answer: {ANSWER}",
    "last_line": ANSWER,
    "full_response": ANSWER,
}


class StringMatchEnvironment(Environment[None]):
    """Questions with a short answer; the reward is 1.0 for the same text or number, else 0.0."""

    version = "4"
    references: ClassVar[tuple[str, ...]] = ("nemo",)
    examples = "tasks.jsonl"

    def __init__(
        self, *, number_tolerance: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    ) -> None:
        """Options.

        number_tolerance: largest relative difference of a number from the expected one; a row's
            own `number_tolerance` goes before it.
        """
        self._tolerance = number_tolerance

    def check_task(self, task: Task) -> None:
        """The row must have an `expected_answer` and say where the answer stands."""
        filled_text(task, "expected_answer")
        if task.payload.get("extraction_mode") is None:
            # Many other verifiers' rows have an expected answer, too.
            raise TaskInvalid(
                "extraction_mode",
                "is missing, so the verifier does not know how to find the answer in the "
                f"response. Set extraction_mode to one of {', '.join(MODES)}",
            )
        _mode(task)
        _case_sensitive(task)
        self._tolerance_of(task)

    def expected(self, task: Task) -> Expected:
        """The row's `expected_answer`, in the form that its mode reads."""
        answer = filled_text(task, "expected_answer")
        return Expected(answer, "number" if is_number(answer) else "text", form=_FORMS[_mode(task)])

    async def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
        """Find the answer and compare it."""
        text = rollout.text
        if len(text) <= LONG:  # it ends within milliseconds: a thread would cost more
            return self._judge(rollout.task, text)
        return await asyncio.to_thread(self._judge, rollout.task, text)

    def _judge(self, task: Task, text: str) -> Verdict:
        expected, mode = filled_text(task, "expected_answer"), _mode(task)
        exactly = _case_sensitive(task)
        reward, way = 0.0, None
        if self.compat_of(task):
            answer = nemo.extract(text.strip(), mode)
            if answer is not None:
                reward = nemo.grade(expected, answer, case_sensitive=exactly)
        else:
            answer = extract(text.strip(), mode)
            if answer is not None:
                tolerance = self._tolerance_of(task)
                way = sameness(expected, answer, case_sensitive=exactly, tolerance=tolerance)
            reward = float(way is not None)
        return Verdict(
            reward,
            evidence={
                "extracted_answer": None if answer is None else answer[:EVIDENCE],
                "expected_answer": expected,
                "same_as": way,
            },
            explanation=_explained(expected, answer, mode),
        )

    def _tolerance_of(self, task: Task) -> float:
        given = task.payload.get("number_tolerance", self._tolerance)
        number = isinstance(given, int | float) and not isinstance(given, bool)
        if not number or not math.isfinite(given) or not 0 <= given < 1:
            raise TaskInvalid(
                "number_tolerance", "must be a number that is at least 0 and less than 1"
            )
        return float(given)


def _explained(expected: str, answer: str | None, mode: ExtractionMode) -> str:
    if answer is None:
        return f"expected {expected[:_EXPLAINED]!r}, found no answer in the mode {mode}"
    return f"expected {expected[:_EXPLAINED]!r}, got {answer[:_EXPLAINED]!r}"


def _mode(task: Task) -> ExtractionMode:
    return one_of(MODES, task.payload.get("extraction_mode"), "extraction_mode")


def _case_sensitive(task: Task) -> bool:
    if task.payload.get("case_sensitive") is None:
        return False
    sensitive: bool = task.require("case_sensitive", bool)
    return sensitive
