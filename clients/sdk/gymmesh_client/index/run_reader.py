"""Reads a run: its rows one after another, or one row of a million by its id.

Built on the index (`index`), which has the place of each row. Used by `merge`, `gym-cli data show`,
exports and your own scripts, through `open_run`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gymmesh_client.index.index import Attempt, Index, open_index
from gymmesh_client.log import first_reserved
from gymmesh_client.log_records import COMPLETED, FAILED, FAILURES, ROWS, Place
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.problems import UserError, unreadable
from gymmesh_client.rollout_ids import rollout_id, rollout_key
from gymmesh_client.row_files import (
    DamagedRow,
    RowReader,
    StoredRow,
    damaged_row,
    line_number,
    stored_rows,
)
from gymmesh_responses import loads


class RunReader:
    """A run's output at the time of opening. Get one from `open_run`; a context manager."""

    def __init__(self, files: OutputFiles, index: Index) -> None:
        self.files = files
        self._open(index)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return str(self._state.session["run_id"])

    @property
    def info(self) -> dict[str, Any]:
        """What the latest session recorded: identity, layout and repeats."""
        return dict(self._state.session)

    @property
    def completed(self) -> int:
        """How many rollouts are completed."""
        return self._state.counts[COMPLETED]

    @property
    def failed(self) -> int:
        """How many rollouts failed."""
        return self._state.counts[FAILED]

    def rows(self) -> Iterator[dict[str, Any]]:
        """The completed rollouts' rows, in the order in which they ended."""
        yield from map(loads, self.lines())

    def lines(self) -> Iterator[bytes]:
        """As `rows`, but each row as the line in its file, without the newline."""
        return (row.line for row in self.stored())

    def failures(self) -> Iterator[dict[str, Any]]:
        """The failed rollouts' rows, in the order in which they ended."""
        return (loads(row.line) for row in self.stored(failed=True))

    def stored(self, *, failed: bool = False) -> Iterator[StoredRow]:
        """The unchanged rows of completed rollouts, with their places in the files. `failed`: the
        rows of failed rollouts instead.

        Raises UserError if a row was changed after it was written. So do `rows`, `lines`,
        `failures`, and the methods that look up a rollout's row.
        """
        return stored_rows(self.files, FAILURES if failed else ROWS)

    def rollout_id(self, task_id: str, repeat_index: int) -> str:
        """The id of a task's repeat in this run."""
        return rollout_id(self.run_id, task_id, repeat_index)

    def get(self, task_id: str, repeat_index: int = 0) -> dict[str, Any] | None:
        """The row of a task's repeat, completed or failed; None if it has no outcome."""
        return self.get_rollout(self.rollout_id(task_id, repeat_index))

    def get_rollout(self, rollout: str) -> dict[str, Any] | None:
        """The row of a rollout, completed or failed; None if it has no outcome."""
        line = self.line(rollout)
        return None if line is None else loads(line)

    def line(self, rollout: str) -> bytes | None:
        """The row of a rollout as the line in its file, without the newline."""
        found = self.outcome(rollout)
        return None if found is None else found.row

    def outcome(self, rollout: str) -> Attempt | None:
        """A rollout's current outcome, with its row; None if it has none."""
        return self._current(rollout_key(rollout))

    def tasks(self) -> Iterator[str]:
        """The ids of the tasks whose first repeat has an outcome, in the order in which these
        repeats started. This is the order of the input, unless the run had another order
        (`gymmesh_client.collector.order`).

        Memory does not grow with the run. Raises UserError if the journal is damaged.
        """
        for key in first_reserved(self.files):
            found = self._current(key)
            if found is not None and found.row is not None:
                task_id = str(loads(found.row).get("task_id"))
                if rollout_key(self.rollout_id(task_id, 0)) == key:
                    yield task_id

    def task_rollouts(self, task_id: str) -> list[str]:
        """The ids of a task's rollouts in the journal."""
        repeats = range(int(self.info.get("repeats", 1)))
        names = [self.rollout_id(task_id, repeat) for repeat in repeats]
        return [name for name in names if self._index.find(rollout_key(name))]

    def attempts(self, rollout: str) -> list[Attempt]:
        """All ended attempts of a rollout with their outcomes, oldest first. An attempt whose row
        was changed is `damaged` and has no row.
        """
        key = rollout_key(rollout)
        found = self._attempts(key)
        if any(one.damaged for one in found):
            self._reopen()
            found = self._attempts(key)
        return found

    def close(self) -> None:
        """Close the files."""
        self._index.close()
        self._rows.close()

    def __enter__(self) -> RunReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _current(self, key: bytes) -> Attempt | None:
        try:
            return self._outcome(key)
        except DamagedRow:
            self._reopen()
        return self._outcome(key)

    def _outcome(self, key: bytes) -> Attempt | None:
        for attempt, place in self._index.find(key):
            if attempt.current:
                if place is None:
                    index = self.files.index
                    raise UserError(f"{index} is damaged. Delete this file; gymmesh rebuilds it")
                return self._with_row(attempt, place)
        return None

    def _attempts(self, key: bytes) -> list[Attempt]:
        found = []
        for attempt, place in self._index.find(key):
            try:
                found.append(self._with_row(attempt, place))
            except DamagedRow:
                found.append(replace(attempt, damaged=True))
        return found

    def _reopen(self) -> None:
        """Know the run as it is now: a row that is not at its place may have been moved by a
        compaction since.
        """
        self.close()
        self._open(open_index(self.files))

    def _open(self, index: Index) -> None:
        self._index = index
        self._state = index.info.state()
        self._rows = RowReader(self.files, self._state.compacted)

    def _with_row(self, attempt: Attempt, place: Place | None) -> Attempt:
        if place is None:
            return attempt
        try:
            return replace(attempt, row=self._rows.read(place).rstrip(b"\n"))
        except DamagedRow:
            number = line_number(self.files, place)
            raise damaged_row(self.files.row_file(*place.file), number) from None
        except OSError as error:
            raise unreadable(self.files.row_file(*place.file), error) from None


def open_run(path: str | Path) -> RunReader:
    """Open a run's output for reading; the run may still be active.

    Args:
        path: the run's `--output`.

    Raises:
        UserError: there is no journal beside the output, or it is damaged.
    """
    files = OutputFiles(Path(path))
    try:
        index = open_index(files)
    except OSError as error:
        raise unreadable(files.journal, error) from None
    return RunReader(files.of_session(index.info.session), index)
