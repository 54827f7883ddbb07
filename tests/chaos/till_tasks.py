"""What is asked for, and what must come of it. Pure.

Task number n has the policy ring two amounts up at a till and say the total. By its number it does
so rightly (reward 1), says a wrong total (0.5) or rings a wrong amount up as well (0). A tool call
that acted twice, a verdict on another session's state, or an invented row changes the reward or
the words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RIGHT, SAYS_WRONG, RINGS_WRONG = range(3)


@dataclass(frozen=True)
class Wanted:
    """One task: what to ring up, what the policy does, and what that is worth."""

    number: int

    @property
    def task_id(self) -> str:
        """Its id in the task file."""
        return f"till-{self.number}"

    @property
    def amounts(self) -> tuple[int, int]:
        """What the task asks to ring up."""
        return 3 + 7 * self.number, 1 + self.number % 5

    @property
    def kind(self) -> int:
        """What the policy makes of it."""
        return (RIGHT, RIGHT, SAYS_WRONG, RINGS_WRONG)[self.number % 4]

    @property
    def rung(self) -> tuple[int, int]:
        """What the policy rings up."""
        left, right = self.amounts
        return (left, right + 1) if self.kind == RINGS_WRONG else (left, right)

    @property
    def text(self) -> str:
        """The policy's last words."""
        return f"The till says {sum(self.amounts) + (self.kind != RIGHT)}."

    @property
    def reward(self) -> float:
        """What the verifier has to give."""
        return {RIGHT: 1.0, SAYS_WRONG: 0.5, RINGS_WRONG: 0.0}[self.kind]

    def row(self) -> dict[str, Any]:
        """Its row in the task file."""
        left, right = self.amounts
        said = f"Task {self.number}: ring up {left} and {right}, then say the total."
        return {
            "task_id": self.task_id,
            "responses_create_params": {"input": [{"role": "user", "content": said}]},
            "total": left + right,
        }


def wanted_of(text: str) -> Wanted:
    """The task of a user's message. Raises ValueError for another one's."""
    head, _, _ = text.partition(":")
    return Wanted(int(head.removeprefix("Task ")))


def asked(tasks: int, repeats: int, timeout_s: float) -> dict[str, Any]:
    """All that the judge is told of what was asked, as JSON values."""
    return {
        "repeats": repeats,
        "timeout_s": timeout_s,
        "tasks": {
            one.task_id: {"reward": one.reward, "text": one.text}
            for one in (Wanted(number) for number in range(tasks))
        },
    }
