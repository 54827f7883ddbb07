"""Which finished rollouts to run again, and how their outcomes are given up.

In words: `failed`, `boundary=TOOL`, `task=ID`, `damaged`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from gymmesh_client.boundaries import BOUNDARY_NUMBERS
from gymmesh_client.journal import Journal
from gymmesh_client.log_records import FAILED, FAILURES, RETRY, ROWS, CurrentOutcome
from gymmesh_client.problems import UserError
from gymmesh_client.rollout_ids import rollout_ids, rollout_key
from gymmesh_client.row_files import every_row

_NUMBERS: Final = {name: number for name, number in BOUNDARY_NUMBERS.items() if number}


class Retried(NamedTuple):
    """The result of a retry: superseded outcomes, and selected ones that stay nevertheless."""

    superseded: int = 0
    left: int = 0


@dataclass(frozen=True, slots=True)
class RetryChoice:
    """Finished rollouts to run again: all that match at least one attribute.

    Attributes:
        failed: all rollouts that failed.
        boundaries: rollouts that failed at one of these `gymmesh.rollout.v1.Boundary` values.
        tasks: all rollouts of these tasks, completed or failed.
        damaged: rollouts whose rows were changed after they were written.
        rollouts: the rollouts with these ids.
    """

    failed: bool = False
    boundaries: frozenset[int] = frozenset()
    tasks: frozenset[str] = frozenset()
    damaged: bool = False
    rollouts: frozenset[str] = frozenset()

    @staticmethod
    def parse(words: Iterable[str]) -> RetryChoice:
        """The choice that these words describe. Raises UserError for an unknown word."""
        failed, damaged, boundaries, tasks = False, False, set(), set()
        for word in words:
            name, equals, value = word.partition("=")
            if word == "failed":
                failed = True
            elif word == "damaged":
                damaged = True
            elif name == "boundary" and value.upper() in _NUMBERS:
                boundaries.add(_NUMBERS[value.upper()])
            elif name == "task" and equals and value:
                tasks.add(value)
            else:
                known = ", ".join(sorted(_NUMBERS))
                raise UserError(
                    f"--retry {word}: expected failed, damaged, task=ID or boundary=NAME, "
                    f"where NAME is one of {known}"
                )
        return RetryChoice(failed, frozenset(boundaries), frozenset(tasks), damaged)

    def __bool__(self) -> bool:
        return bool(self.failed or self.boundaries or self.tasks or self.damaged or self.rollouts)

    def give_up(self, journal: Journal, tasks: Collection[str] | None, repeats: int) -> Retried:
        """Supersede the chosen outcomes, limited to requested rollouts: this many repeats of each
        of these tasks; None: all.
        """
        if not self:
            return Retried()
        session = journal.state.session
        run_id, most = str(session["run_id"]), int(session.get("repeats", 1))
        named = frozenset(_keys(run_id, self.tasks, most)) | set(map(rollout_key, self.rollouts))

        def is_chosen(one: CurrentOutcome) -> bool:
            failed = one.status == FAILED and (self.failed or one.boundary in self.boundaries)
            return failed or one.key in named

        chosen = journal.current(is_chosen)
        if self.damaged:
            known = {one.key for one in chosen}
            chosen += [one for one in _damaged(journal) if one.key not in known]
        count = len(chosen)
        if tasks is not None:
            asked = {one.key for one in chosen}.intersection(_keys(run_id, tasks, repeats))
            chosen = [one for one in chosen if one.key in asked]
        journal.supersede(chosen, RETRY)
        return Retried(len(chosen), count - len(chosen))


def _damaged(journal: Journal) -> list[CurrentOutcome]:
    """The current outcomes whose rows are not what was written."""
    changed = {
        row.place
        for kind in (ROWS, FAILURES)
        for row in every_row(journal.files, kind)
        if row.line is None
    }
    return [one for one in journal.current(lambda one: True) if one.place in changed]


def _keys(run_id: str, tasks: Iterable[str], repeats: int) -> Iterator[bytes]:
    """The keys of the rollouts of tasks."""
    for task in tasks:
        yield from map(rollout_key, rollout_ids(run_id, task, range(repeats)))
