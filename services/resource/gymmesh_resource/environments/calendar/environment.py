"""Conversations that keep a calendar: the last answer must hold it, with all constraints met.

Task rows have `exp_cal_state`, as NeMo Gym's calendar rows: the expected events by id.
"""

from __future__ import annotations

from typing import ClassVar

from gymmesh_resource import Environment, Rollout, Session, Task, Verdict
from gymmesh_resource.environments.calendar.arranging import arranged
from gymmesh_resource.environments.calendar.verdict import (
    NEMO,
    RIGHT,
    CalendarReading,
    WantedEvent,
    judge,
    read_expected,
)
from gymmesh_resource.expected import Expected
from gymmesh_responses import dumps

_WORDS = {
    "no_answer": "the rollout does not end with a message",
    "no_json_list": "the answer has no JSON list of events",
    "think_found": "the answer contains <think>",
    "different_number_of_events": "the calendar has more or fewer events than expected",
    "conflicting_events": "two events overlap",
    "constraint_violated": (
        "an event has the wrong duration, or its time breaks the row's constraint or limits"
    ),
    "error_in_grading": "an event cannot be read, or the row does not expect this event",
}


class CalendarEnvironment(Environment[None]):
    """Conversations about a calendar. No tools: the answer is the calendar as a JSON list.

    The reward is 1.0 if the calendar has the expected events, without overlaps, and each event
    meets its constraint. Otherwise the reward is 0.0.
    """

    version = "2"
    references: ClassVar[tuple[str, ...]] = ("nemo",)
    examples = "tasks.jsonl"

    def check_task(self, task: Task) -> None:
        """The row must have a valid `exp_cal_state`."""
        self._expected(task)

    def expected(self, task: Task) -> Expected | None:
        """A calendar that meets all constraints."""
        events = arranged(self._expected(task)[0])
        return None if not events else Expected(dumps(events).decode(), "json")

    def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
        """Judge the calendar of the model's last message."""
        expected, reading = self._expected(rollout.task)
        verdict = judge(_last_message(rollout), expected, reading)
        evidence: dict[str, object] = {"reason": verdict.reason}
        left_out = [event_id for event_id, event in expected.items() if not event.understood]
        if left_out:
            evidence["constraints_not_understood"] = left_out
        explanation = "the calendar is as expected" if verdict.reward else _WORDS[verdict.reason]
        return Verdict(verdict.reward, evidence=evidence, explanation=explanation)

    def _expected(self, task: Task) -> tuple[dict[str, WantedEvent], CalendarReading]:
        reading = NEMO if self.compat_of(task) else RIGHT
        return read_expected(task.require("exp_cal_state", dict), reading), reading


def _last_message(rollout: Rollout) -> str:
    """The model's last message; empty where the rollout ends with something else.

    A model that was cut off while it reasoned has not answered, whatever it said before.
    """
    if not rollout.items:
        return ""
    last = rollout.items[-1]
    said = last.WhichOneof("kind") == "message" and last.message.role == "assistant"
    return rollout.answer if said else ""
