"""What a journal amounts to: the run, which rollouts have an outcome, how long files are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh_client.journal.keys import KeyTable, Slot, read_slot, write_slot
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
    SomeOutcome,
    Superseded,
)

_ATTEMPT_SHIFT: Final = 2
_STATUS: Final = 3  # within a slot's first byte


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

    def attempts(self, keys: Sequence[bytes]) -> list[int]:
        """`attempt` of each of these rollouts."""
        return [value >> _ATTEMPT_SHIFT for value in self._rollouts.values(keys)]

    def apply(self, record: Record) -> None:
        """Take one record in.

        Raises:
            BadRecord: it contradicts those before it: a second outcome, or one superseded that
                is not current.
        """
        if isinstance(record, Outcome):
            place = record.place
            self.add_outcomes((record,), self.slots((record.key,)))
            self.hold(place[:2], place.offset + place.extent, 1)
        elif isinstance(record, Reserved):
            self._used(record.attempts)
        elif isinstance(record, Released):
            for key, attempt in record.attempts:
                if self.attempt(key) == attempt and not self.status(key):
                    self._rollouts.set(key, (attempt - 1) << _ATTEMPT_SHIFT)
        elif isinstance(record, AttemptFailed):
            self._used(((record.key, record.attempt),))
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

    def slots(self, keys: Iterable[bytes]) -> list[Slot]:
        """Where the table keeps these rollouts, for `add_outcomes`."""
        return self._rollouts.slots(keys)

    def none_current(self, slots: Iterable[Slot]) -> bool:
        """Whether none of the rollouts in these slots has a current outcome."""
        together = 0
        for bucket, at in slots:
            together |= bucket[at]  # the byte that has the status
        return not together & _STATUS

    def add_outcomes(self, outcomes: Iterable[SomeOutcome], slots: Iterable[Slot]) -> None:
        """The rollouts that are kept in these slots have a current outcome from now on; where their
        rows are, `hold` is told.

        Raises:
            BadRecord: as `apply`.
        """
        counts = self.counts
        for one, (bucket, at) in zip(outcomes, slots, strict=True):
            status = one.status
            if bucket[at] & _STATUS:
                raise BadRecord("a rollout has a second outcome, and the first was not superseded")
            if status not in counts:
                raise BadRecord(f"an outcome of kind {status}")
            attempt = one.attempt
            if attempt > read_slot(bucket, at)[0] >> _ATTEMPT_SHIFT:
                write_slot(bucket, at, (attempt << _ATTEMPT_SHIFT) | status)
            else:
                bucket[at] |= status
            counts[status] += 1

    def hold(self, file: tuple[int, int], end: int, rows: int) -> None:
        """A file, of a lane and shard, holds so many rows more, and ends there or behind it."""
        if end > self.ends.get(file, 0):
            self.ends[file] = end
        lane, shard = file
        if rows and lane == ROWS:
            self.rows_in[shard] = self.rows_in.get(shard, 0) + rows

    def _superseded(self, record: Superseded) -> None:
        value = self._rollouts.get(record.key)
        if not value & _STATUS:
            raise BadRecord("an outcome is superseded that is not current")
        self.counts[value & _STATUS] -= 1
        self._rollouts.set(record.key, value & ~_STATUS)
        kept = record.kept
        self.hold(kept[:2], kept.offset + kept.extent, 0)
        self.to_erase.append(record.was)

    def _used(self, attempts: Sequence[tuple[bytes, int]]) -> None:
        slots = self.slots([key for key, _ in attempts])
        for (_, attempt), (bucket, at) in zip(attempts, slots, strict=True):
            value = read_slot(bucket, at)[0]
            if attempt > value >> _ATTEMPT_SHIFT:
                write_slot(bucket, at, (attempt << _ATTEMPT_SHIFT) | (value & _STATUS))
