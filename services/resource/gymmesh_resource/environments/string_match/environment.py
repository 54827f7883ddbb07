"""Questions with a short answer. Task rows are NeMo Gym's string_match rows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gymmesh_resource import Environment, Rollout, Session, Task, TaskInvalid, Verdict
from gymmesh_resource.environments.row_fields import filled_text, one_of
from gymmesh_resource.expected import ANSWER, Expected, is_number

from .extraction import MODES, ExtractionMode, extract
from .verdict import grade

# Characters of an answer kept as evidence.
EVIDENCE = 1_000
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
    """Questions with a short answer; the reward is 1.0 for the same text or number, 0.98 for a
    number within about 1 %, else 0.0."""

    version = "1"
    examples = "tasks.jsonl"

    def check_task(self, task: Task) -> None:
        """The row must have an `expected_answer` and say where the answer stands."""
        filled_text(task, "expected_answer")
        if task.payload.get("extraction_mode") is None:
            # Many other verifiers' rows have an expected answer, too.
            raise TaskInvalid(
                "extraction_mode",
                "is missing; an expected answer alone does not say that it is compared as text: "
                f"give one of {', '.join(MODES)}",
            )
        _mode(task)
        _case_sensitive(task)

    def expected(self, task: Task) -> Expected:
        """The row's `expected_answer`, in the form that its mode reads."""
        answer = filled_text(task, "expected_answer")
        return Expected(answer, "number" if is_number(answer) else "text", form=_FORMS[_mode(task)])

    async def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
        """Find the answer and compare it."""
        text = rollout.text
        if len(text) <= LONG:  # it ends within milliseconds: a thread would cost more
            return _judge(rollout.task, text)
        return await asyncio.to_thread(_judge, rollout.task, text)


def _judge(task: Task, text: str) -> Verdict:
    expected = filled_text(task, "expected_answer")
    answer = extract(text.strip(), _mode(task))
    reward = 0.0
    if answer is not None:
        reward = grade(expected, answer, case_sensitive=_case_sensitive(task))
    return Verdict(
        reward,
        evidence={
            "extracted_answer": None if answer is None else answer[:EVIDENCE],
            "expected_answer": expected,
        },
    )


def _mode(task: Task) -> ExtractionMode:
    return one_of(MODES, task.payload.get("extraction_mode"), "extraction_mode")


def _case_sensitive(task: Task) -> bool:
    if task.payload.get("case_sensitive") is None:
        return False
    sensitive: bool = task.require("case_sensitive", bool)
    return sensitive
