"""Which finished rollouts to run again: `failed`, `boundary=TOOL`, `task=ID`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gymmesh_client.boundaries import BOUNDARY_NUMBERS
from gymmesh_client.journal.format.keys import rollout_id, rollout_key
from gymmesh_client.journal.format.records import FAILED, CurrentOutcome
from gymmesh_client.problems import UserError

_NUMBERS: Final = {name: number for name, number in BOUNDARY_NUMBERS.items() if number}


@dataclass(frozen=True, slots=True)
class RetryChoice:
    """Finished rollouts to run again; one that any of the attributes names is chosen.

    Attributes:
        failed: all that failed.
        boundaries: those that failed at one of these, `gymmesh.rollout.v1.Boundary` values.
        tasks: all of these tasks, completed or failed.
    """

    failed: bool = False
    boundaries: frozenset[int] = frozenset()
    tasks: frozenset[str] = frozenset()

    @staticmethod
    def parse(words: Iterable[str]) -> RetryChoice:
        """The choice that words such as `failed`, `boundary=TOOL` and `task=ID` make.

        Raises:
            UserError: a word means nothing.
        """
        failed, boundaries, tasks = False, set(), set()
        for word in words:
            name, equals, value = word.partition("=")
            if word == "failed":
                failed = True
            elif name == "boundary" and value.upper() in _NUMBERS:
                boundaries.add(_NUMBERS[value.upper()])
            elif name == "task" and equals and value:
                tasks.add(value)
            else:
                known = ", ".join(sorted(_NUMBERS))
                raise UserError(
                    f"--retry {word}: must be failed, task=ID or boundary=NAME, with one of {known}"
                )
        return RetryChoice(failed, frozenset(boundaries), frozenset(tasks))

    def __bool__(self) -> bool:
        return bool(self.failed or self.boundaries or self.tasks)

    def keys(self, run_id: str, repeats: int) -> frozenset[bytes]:
        """The keys of the rollouts of the tasks."""
        return frozenset(
            rollout_key(rollout_id(run_id, task, repeat))
            for task in self.tasks
            for repeat in range(repeats)
        )

    def matches(self, outcome: CurrentOutcome, keys: frozenset[bytes]) -> bool:
        """Whether an outcome is chosen; `keys` are those of the tasks."""
        if outcome.status == FAILED and (self.failed or outcome.boundary in self.boundaries):
            return True
        return outcome.key in keys
