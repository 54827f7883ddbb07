"""What the output of a run already has when the run is resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymmesh_client import RunOutput, Tally


@dataclass(frozen=True, slots=True)
class Earlier:
    """Counts the outcomes that are there already.

    Attributes:
        tasks: the run's tasks, with those that only an earlier session selected.
    """

    tally: Tally
    tasks: set[str]

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Count a completed rollout's row."""
        self.tasks.add(str(row.get("task_id")))
        self.tally.add_row(row, kept=True)

    def add_failure(self, row: Mapping[str, Any]) -> None:
        """Count a failed rollout's row."""
        self.tasks.add(str(row.get("task_id")))
        self.tally.add_failure(row, kept=True)


def requested(ids: Sequence[str], repeats: int, output: RunOutput) -> int:
    """How many rollouts the run is to have, those that only an earlier session asked for
    included.
    """
    asked = len(ids) * repeats
    kept = sum(output.has_outcome(task, repeat) for task in ids for repeat in range(repeats))
    return asked + output.outcomes - kept
