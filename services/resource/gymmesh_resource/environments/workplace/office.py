"""An office: five tables that tools read and change, over data that all sessions share.

Invariant: the shared records are never changed. A session stores only its own changes. So an office
needs memory only for its changes, and two offices over the same data are compared by their changes
alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gymmesh_resource import ToolError

NOW = "2023-11-30 23:59:00"
"""The office's time, which stands still; the rows of NeMo Gym's workplace_assistant tell it."""

OfficeRecord: TypeAlias = "dict[str, str | None]"

# Fields in which capital letters matter when two offices are compared, as in NeMo Gym.
_EXACT = frozenset({"status", "list_name", "board"})
_DIGITS = 8


@dataclass(frozen=True, slots=True)
class OfficeData:
    """Where every session starts: records by id, in order. Not to be changed.

    visits: one record for each visit to the website. addresses: the company's people.
    """

    emails: Mapping[str, OfficeRecord]
    events: Mapping[str, OfficeRecord]
    tasks: Mapping[str, OfficeRecord]
    customers: Mapping[str, OfficeRecord]
    visits: Sequence[Mapping[str, Any]]
    addresses: Sequence[str]


class RecordTable:
    """Records by id: shared ones, and a session's changed, added and deleted ones.

    `finding`: how to find ids, for the error about a missing record.
    """

    def __init__(self, shared: Mapping[str, OfficeRecord], id_field: str, finding: str) -> None:
        self._shared = shared
        self._id_field = id_field
        self._finding = finding
        self._changes: dict[str, OfficeRecord | None] = {}  # None: deleted
        self._next = 1 + max((int(key) for key in shared if key.isdecimal()), default=-1)

    def find(self, record_id: str) -> OfficeRecord:
        """The current record; do not change it. Raises `ToolError` if it does not exist."""
        record = self._changes.get(record_id, self._shared.get(record_id))
        if record is None:
            kind = self._id_field.removesuffix("_id")
            raise ToolError(f"There is no {kind} {record_id[:40]!r}; {self._finding}.")
        return record

    def __iter__(self) -> Iterator[OfficeRecord]:
        """The records as they are now, the oldest first."""
        for record in {**self._shared, **self._changes}.values():
            if record is not None:
                yield record

    def add(self, record: Mapping[str, str | None]) -> str:
        """Keep a new record; gives its id, the next of eight digits."""
        record_id = str(self._next).zfill(_DIGITS)
        self._next += 1
        self._changes[record_id] = {self._id_field: record_id, **record}
        return record_id

    def update(self, record_id: str, name: str, value: str) -> None:
        """Change a field of a record. Raises `ToolError` where there is none."""
        self._changes[record_id] = {**self.find(record_id), name: value}

    def delete(self, record_id: str) -> None:
        """Remove a record. Raises `ToolError` where there is none."""
        self.find(record_id)
        if record_id in self._shared:
            self._changes[record_id] = None
        else:
            del self._changes[record_id]

    def difference(self) -> tuple[Any, ...]:
        """The differences of the table from the shared data; equal for equal tables.

        New records are compared without their ids and in any order: ids tell only the order
        in which records were made.
        """
        changed: dict[str, Any] = {}
        deleted: set[str] = set()
        added: Counter[Any] = Counter()
        for record_id, record in self._changes.items():
            if record is None:
                deleted.add(record_id)
            elif record_id not in self._shared:
                added[_plain({**record, self._id_field: None})] += 1
            elif (after := _plain(record)) != _plain(self._shared[record_id]):
                changed[record_id] = after
        return changed, deleted, added


class Office:
    """What one session sees and changes."""

    def __init__(self, data: OfficeData) -> None:
        self.data = data
        self.emails = RecordTable(data.emails, "email_id", "email_search_emails finds ids")
        self.events = RecordTable(
            data.events, "event_id", "ids have eight digits, calendar_search_events finds them"
        )
        self.tasks = RecordTable(
            data.tasks,
            "task_id",
            "ids have eight digits, project_management_search_tasks finds them",
        )
        self.customers = RecordTable(
            data.customers,
            "customer_id",
            "customer_relationship_manager_search_customers finds ids",
        )
        self.plots: list[str] = []

    def differences(self) -> dict[str, tuple[Any, ...]]:
        """What was done here, by table; equal for offices in the same state."""
        return {
            "email": self.emails.difference(),
            "calendar": self.events.difference(),
            "project_management": self.tasks.difference(),
            "customer_relationship_manager": self.customers.difference(),
            "analytics": (Counter(path.lower() for path in self.plots),),
        }


def differing_tables(left: Office, right: Office) -> list[str]:
    """The names of the tables that differ; none where two offices are in the same state.

    The rule is that of WorkBench and of NeMo Gym's workplace_assistant: what counts is the state
    that the model's calls lead to, not the calls. Texts are compared without regard to capitals
    but for a customer's status, a task's list and its board. Here, unlike there, records that were
    newly made may have been made in any order, and get any ids.
    """
    if left.data is not right.data:
        raise ValueError("the offices do not start from the same data")
    ours, theirs = left.differences(), right.differences()
    return [name for name in ours if ours[name] != theirs[name]]


def _plain(record: Mapping[str, str | None]) -> tuple[tuple[str, str | None], ...]:
    return tuple(
        sorted(
            (key, value.lower() if value is not None and key not in _EXACT else value)
            for key, value in record.items()
        )
    )
