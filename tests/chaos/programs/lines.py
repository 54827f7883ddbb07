"""What programs are asked for, and what must come of it. Pure.

The task number n wants some lines in a file, one with each call of the shell. A call that acted
twice, a step that was lost, or the work of another rollout changes the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from tests.chaos.sandboxes.using import MARK

_ASKED: Final = re.compile(r"Write the (\d+) lines of task (\d+)\.")


@dataclass(frozen=True)
class WantedLines:
    """One task."""

    number: int

    @property
    def task_id(self) -> str:
        """Its id in the task file."""
        return f"lines-{self.number}"

    @property
    def count(self) -> int:
        """How many lines, and so how many calls of the shell."""
        return 2 + self.number % 4

    @property
    def calls(self) -> int:
        """How many answers of the model that takes."""
        return self.count + 1

    def command(self, number: int) -> str:
        """The shell's command for a line."""
        return f"echo task-{self.number}-{number} >>out"

    def row(self, mark: str) -> dict[str, Any]:
        """Its row in the task file. `mark`: a variable of all that runs in its sandboxes."""
        lines = "\\n".join(f"task-{self.number}-{number}" for number in range(self.count))
        return {
            "task_id": self.task_id,
            "responses_create_params": {
                "input": f"Write the {self.count} lines of task {self.number}."
            },
            "env": {MARK: mark},
            "checks": [{"name": "lines", "run": f'test "$(cat out)" = "$(printf \'{lines}\')"'}],
        }


def wanted_lines(text: str) -> WantedLines | None:
    """The task of a prompt."""
    found = _ASKED.search(text)
    return WantedLines(int(found[2])) if found else None
