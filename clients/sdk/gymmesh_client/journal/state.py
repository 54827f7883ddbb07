"""What a journal amounts to: the run, which rollouts have an outcome, how long files are. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh_client.journal.keys import KeyTable
from gymmesh_client.journal.records import (
    COMPLETED,
    FAILED,
    ROWS,
    AttemptFailed,
    BadRecord,
    Erased,
    Outcome,
    Place,
    Record,
    Released,
    Reserved,
    Rewritten,
    RunEnded,
    Session,
    Superseded,
)

_ATTEMPT_SHIFT: Final = 2
_STATUS: Final = 3


@dataclass(slots=True)
class RunState:
    """The journal's records, applied in order. About 25 bytes per rollout.

    Attributes:
        session: what the latest session said of the run.
        ended: what the latest session said at its end; None when it did not end well.
        counts: current outcomes, by status.
        ends: bytes of each file of rows, by lane and shard.
        rows_in: rows ever put into each shard of the ROWS lane.
        to_erase: superseded rows that may still stand in their files.
        rewrites: the compressed frames that those rows are in, as they are to be.
    """

    session: dict[str, Any] = field(default_factory=dict)
    ended: dict[str, Any] | None = None
    counts: dict[int, int] = field(default_factory=lambda: {COMPLETED: 0, FAILED: 0})
    ends: dict[tuple[int, int], int] = field(default_factory=dict)
    rows_in: dict[int, int] = field(default_factory=dict)
    to_erase: list[Place] = field(default_factory=list)
    rewrites: list[Rewritten] = field(default_factory=list)
    _rollouts: KeyTable = field(default_factory=KeyTable)

    def status(self, key: bytes) -> int:
        """COMPLETED or FAILED when the rollout has a current outcome, else 0."""
        return self._rollouts.get(key) & _STATUS

    def attempt(self, key: bytes) -> int:
        """The highest attempt of a rollout that may have been sent; 0: none."""
        return self._rollouts.get(key) >> _ATTEMPT_SHIFT

    def apply(self, record: Record) -> None:
        """Take one record in.

        Raises:
            BadRecord: it contradicts those before it: a second outcome, or one superseded that
                is not current.
        """
        if isinstance(record, Outcome):
            self._outcome(record)
        elif isinstance(record, Reserved):
            for key, attempt in record.attempts:
                self._used(key, attempt)
        elif isinstance(record, Released):
            for key, attempt in record.attempts:
                if self.attempt(key) == attempt and not self.status(key):
                    self._rollouts.set(key, (attempt - 1) << _ATTEMPT_SHIFT)
        elif isinstance(record, AttemptFailed):
            self._used(record.key, record.attempt)
        elif isinstance(record, Superseded):
            self._superseded(record)
        elif isinstance(record, Rewritten):
            self.rewrites.append(record)
        elif isinstance(record, Erased):
            self.to_erase.clear()
            self.rewrites.clear()
            for lane, shard, end in record.ends:
                self.ends[lane, shard] = end
        elif isinstance(record, Session):
            self.session, self.ended = record.info, None
        elif isinstance(record, RunEnded):
            self.ended = record.info

    def _outcome(self, record: Outcome) -> None:
        key, attempt, status, _, place = record
        value = self._rollouts.get(key)
        if value & _STATUS:
            raise BadRecord("a rollout has a second outcome, and the first was not superseded")
        if status not in (COMPLETED, FAILED):
            raise BadRecord(f"an outcome of kind {status}")
        attempt = max(attempt, value >> _ATTEMPT_SHIFT)
        self._rollouts.set(key, (attempt << _ATTEMPT_SHIFT) | status)
        self.counts[status] += 1
        self._holds(place)
        if place.lane == ROWS:
            shard = place.shard
            self.rows_in[shard] = self.rows_in.get(shard, 0) + 1

    def _superseded(self, record: Superseded) -> None:
        value = self._rollouts.get(record.key)
        if not value & _STATUS:
            raise BadRecord("an outcome is superseded that is not current")
        self.counts[value & _STATUS] -= 1
        self._rollouts.set(record.key, value & ~_STATUS)
        self._holds(record.kept)
        self.to_erase.append(record.was)

    def _holds(self, place: Place) -> None:
        file = (place.lane, place.shard)
        self.ends[file] = max(self.ends.get(file, 0), place.offset + place.extent)

    def _used(self, key: bytes, attempt: int) -> None:
        value = self._rollouts.get(key)
        if attempt > value >> _ATTEMPT_SHIFT:
            self._rollouts.set(key, (attempt << _ATTEMPT_SHIFT) | (value & _STATUS))
