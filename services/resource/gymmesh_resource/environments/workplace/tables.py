"""Reads an office from a folder of CSV files, as the WorkBench benchmark lays them out.

`emails.csv`, `calendar_events.csv`, `project_tasks.csv`, `customer_relationship_manager_data.csv`
and `analytics_data.csv`, each with a header. The people of the company are read from the addresses
that tasks, customers and events are assigned to.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gymmesh_resource.environments.workplace.office import OfficeData, OfficeRecord

_EMAIL = ("email_id", "inbox/outbox", "sender/recipient", "subject", "sent_datetime", "body")
_EVENT = ("event_id", "event_name", "participant_email", "event_start", "duration")
_TASK = ("task_id", "task_name", "assigned_to_email", "list_name", "due_date", "board")
_CUSTOMER = (
    "customer_id", "assigned_to_email", "customer_name", "customer_email", "customer_phone",
    "last_contact_date", "product_interest", "status", "follow_up_by", "notes",
)  # fmt: skip
_VISIT = (
    "date_of_visit", "visitor_id", "page_views", "session_duration_seconds", "traffic_source",
    "user_engaged",
)  # fmt: skip


def read_office(folder: Path) -> OfficeData:
    """The office in a folder. Raises ValueError, in one sentence, for what cannot be read."""
    tasks = _table(folder / "project_tasks.csv", _TASK)
    customers = _table(folder / "customer_relationship_manager_data.csv", _CUSTOMER)
    events = _table(folder / "calendar_events.csv", _EVENT)
    visits: list[dict[str, Any]] = [
        {**row, "user_engaged": row["user_engaged"] == "True"}
        for row in _rows(folder / "analytics_data.csv", _VISIT)
    ]
    assigned = [one["assigned_to_email"] for one in (*tasks.values(), *customers.values())]
    assigned += [event["participant_email"] for event in events.values()]
    return OfficeData(
        emails=_table(folder / "emails.csv", _EMAIL),
        events=events,
        tasks=tasks,
        customers=customers,
        visits=visits,
        addresses=sorted({address.lower() for address in assigned if address}),
    )


def _table(path: Path, fields: Sequence[str]) -> dict[str, OfficeRecord]:
    return {record[fields[0]] or "": record for record in _rows(path, fields)}


def _rows(path: Path, fields: Sequence[str]) -> list[OfficeRecord]:
    """The records with exactly these fields; an empty cell is None."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in fields if name not in (reader.fieldnames or ())]
            if missing:
                raise ValueError(f"{path} has no column {missing[0]!r}.")
            rows = list(reader)
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from None
    return [{name: row[name] or None for name in fields} for row in rows]
