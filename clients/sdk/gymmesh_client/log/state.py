"""What a journal amounts to: the run, which rollouts have an outcome, how long files are. Pure.

Replayed from the log when a run is opened for writing, and kept up to date by each commit. It
holds a dict entry for each rollout (about 100 bytes, a tenth of a GB for a million); where rows
are is the index's to know.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh_client.log_records import (
    COMPLETED,
    FAILED,
    ROWS,
    SUPERSEDED,
    AttemptFailed,
    BadRecord,
    Compacted,
    CurrentOutcome,
    Place,
    Record,
    Released,
    Reserved,
    RowFile,
    RunEnded,
    RunOpened,
    Superseded,
)

# What is kept of a rollout: its status, and above it the highest attempt.
_ATTEMPT_SHIFT: Final = 2
_STATUS: Final = 3


@dataclass(slots=True)
class RunState:
    """The journal's records, applied in order."""

    session: dict[str, Any] = field(default_factory=dict)  # what the latest said of the run
    ended: dict[str, Any] | None = None  # what it said at its end; None when that was not well
    counts: dict[int, int] = field(default_factory=lambda: {COMPLETED: 0, FAILED: 0})  # by status
    ends: dict[RowFile, int] = field(default_factory=dict)  # bytes of each row file
    rows_in: dict[int, int] = field(default_factory=dict)  # rows ever put into each shard of ROWS
    superseded: list[Place] = field(default_factory=list)  # that no compaction has dropped yet
    compacted: dict[RowFile, int] = field(default_factory=dict)  # each one's latest, its number
    _rollouts: dict[bytes, int] = field(default_factory=dict)

    def status(self, key: bytes) -> int:
        """COMPLETED or FAILED when the rollout has a current outcome, else 0."""
        return self._rollouts.get(key, 0) & _STATUS

    def attempt(self, key: bytes) -> int:
        """The highest attempt of a rollout that may have been sent; 0: none."""
        return self._rollouts.get(key, 0) >> _ATTEMPT_SHIFT

    def apply(self, record: Record) -> None:
        """Take one record in. Raises BadRecord where it contradicts those before it."""
        if isinstance(record, CurrentOutcome):
            self._outcome(record)
        elif isinstance(record, Reserved):
            self._used(record.attempts)
        elif isinstance(record, Released):
            for key, attempt in record.attempts:
                if self.attempt(key) == attempt and not self.status(key):
                    self._rollouts[key] = (attempt - 1) << _ATTEMPT_SHIFT
        elif isinstance(record, AttemptFailed):
            self._used(((record.key, record.attempt),))
        elif isinstance(record, Superseded):
            self._no_longer_current(record.key)
            self.superseded.append(record.place)
        else:
            self.apply_to_run(record)

    def apply_to_run(self, record: Record) -> None:
        """Take in a record that says something of the run or of its files, and not of a rollout."""
        if isinstance(record, Compacted):
            file = (record.kind, record.shard)
            self.ends[file] = record.size
            self.compacted[file] = record.number
            self.superseded = [place for place in self.superseded if place.file != file]
            self.reach((SUPERSEDED, 0), record.kept_at + sum(one.length for one in record.removed))
        elif isinstance(record, RunOpened):
            self.session, self.ended = record.info, None
        elif isinstance(record, RunEnded):
            self.ended = record.info

    def reach(self, file: RowFile, end: int) -> None:
        """A row file ends there or behind it."""
        if end > self.ends.get(file, 0):
            self.ends[file] = end

    def _outcome(self, record: CurrentOutcome) -> None:
        key, attempt, status, _, place = record
        was = self._rollouts.get(key, 0)
        if was & _STATUS:
            raise BadRecord("a rollout has a second outcome, but the first was not superseded")
        if status not in self.counts:
            raise BadRecord(f"an outcome of kind {status}")
        self._rollouts[key] = max(attempt, was >> _ATTEMPT_SHIFT) << _ATTEMPT_SHIFT | status
        self.counts[status] += 1
        kind, shard, offset, _, _, extent, _ = place
        self.reach((kind, shard), offset + extent)
        if kind == ROWS:
            self.rows_in[shard] = self.rows_in.get(shard, 0) + 1

    def _no_longer_current(self, key: bytes) -> None:
        was = self._rollouts.get(key, 0)
        if not was & _STATUS:
            raise BadRecord("a superseded outcome is not current")
        self.counts[was & _STATUS] -= 1
        self._rollouts[key] = was & ~_STATUS

    def _used(self, attempts: Iterable[tuple[bytes, int]]) -> None:
        rollouts = self._rollouts
        for key, attempt in attempts:
            was = rollouts.get(key, 0)
            if attempt > was >> _ATTEMPT_SHIFT:
                rollouts[key] = attempt << _ATTEMPT_SHIFT | was & _STATUS
