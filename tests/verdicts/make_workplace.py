r"""Makes cases/workplace.jsonl, about the synthetic office of seed 0: written here by hand.

Run it as `.venv/bin/python -m tests.verdicts.make_workplace`.
"""

# ruff: noqa: E501  # a line a case reads better than its parts
from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.verdicts.case_files import case, write

Calls = list[tuple[str, dict[str, Any]]]
MAIL = {"recipient": "a@b.com", "subject": "Hello", "body": "Fine"}
EVENT = {
    "event_name": "A",
    "participant_email": "a@b.com",
    "event_start": "2023-12-01 10:00:00",
    "duration": "30",
}
TASK = {
    "task_name": "A",
    "assigned_to_email": "raj.patel@atlas.com",
    "list_name": "Backlog",
    "due_date": "2023-12-05",
    "board": "Design",
}
SEND: Calls = [("email_send_email", MAIL)]
DELETE: Calls = [("email_delete_email", {"email_id": "00000001"})]
CREATE: Calls = [("calendar_create_event", EVENT)]
BOARD: Calls = [("project_management_create_task", TASK)]
READ: Calls = [("email_search_emails", {"query": "kofi"})]
# Expected calls, calls made, reward, why. `+`: in other clothes.
CASES: list[tuple[Calls, Calls, float, str]] = [
    (DELETE, DELETE, 1.0, "the same call"), (DELETE, [], 0.0, "nothing done"),
    (DELETE, READ + DELETE, 1.0, "+reading does no harm"), (DELETE, DELETE + READ, 1.0, "+reading does no harm"),
    (DELETE, DELETE + DELETE, 1.0, "+the second call fails and changes nothing"),
    (DELETE, [("email_delete_email", {"email_id": "1"}), *DELETE], 1.0, "+a failed call before the right one"),
    (DELETE, [("email_delete_email", {"email_id": "00000002"})], 0.0, "another mail"),
    (DELETE, [*DELETE, ("email_delete_email", {"email_id": "00000002"})], 0.0, "a mail too many"),
    (DELETE, [("email_delete_email", {"email_id": "1"})], 0.0, "no such mail"),
    (DELETE, [("email_remove_email", {"email_id": "00000001"})], 0.0, "no such tool"),
    (DELETE, [("email_delete_email", {"email_id": "00000001", "force": True})], 0.0, "no such argument"),
    (DELETE, SEND, 0.0, "another change"), (DELETE, READ, 0.0, "only read"),
    (SEND, SEND, 1.0, "the same call"), (SEND, SEND + SEND, 0.0, "sent twice"), (SEND, [], 0.0, "nothing done"),
    (SEND, [("email_send_email", MAIL | {"subject": "HELLO", "recipient": "A@B.com"})], 1.0, "+capital letters"),
    (SEND, [("email_send_email", {"body": "Fine", "subject": "Hello", "recipient": "a@b.com"})], 1.0, "+another order of arguments"),
    (SEND, [("email_send_email", MAIL | {"recipient": "a@c.com"})], 0.0, "another recipient"),
    (SEND, [("email_send_email", MAIL | {"body": "Fine."})], 0.0, "another text"),
    (SEND, [("email_send_email", MAIL | {"subject": ""})], 0.0, "no subject"),
    (SEND, [*SEND, ("email_send_email", MAIL | {"recipient": "x@y.com"})], 0.0, "a mail too many"),
    (CREATE, CREATE, 1.0, "the same call"), (CREATE, CREATE + CREATE, 0.0, "twice"),
    (CREATE, [("calendar_create_event", EVENT | {"event_start": "2023-12-01T10:00"})], 1.0, "+the same moment"),
    (CREATE, [("calendar_create_event", EVENT | {"duration": 30})], 1.0, "+the duration as a number"),
    (CREATE, [("calendar_create_event", EVENT | {"event_name": "a"})], 1.0, "+small letters"),
    (CREATE, [("calendar_create_event", EVENT | {"event_start": "2023-12-01 22:00:00"})], 0.0, "another time"),
    (CREATE, [("calendar_create_event", EVENT | {"event_start": "2023-01-12 10:00:00"})], 0.0, "another day"),
    (CREATE, [("calendar_create_event", EVENT | {"duration": "60"})], 0.0, "another duration"),
    (CREATE, [("calendar_create_event", EVENT | {"participant_email": "c@b.com"})], 0.0, "another participant"),
    (CREATE, [("calendar_create_event", EVENT | {"event_name": "AB"})], 0.0, "another name"),
    (BOARD, BOARD, 1.0, "the same call"),
    (BOARD, [("project_management_create_task", TASK | {"task_name": "a", "assigned_to_email": "Raj.Patel@atlas.com"})], 1.0, "+capital letters"),
    (BOARD, [("project_management_create_task", TASK | {"list_name": "In Progress"})], 0.0, "another list"),
    (BOARD, [("project_management_create_task", TASK | {"due_date": "2023-12-06"})], 0.0, "another date"),
    (BOARD, [("project_management_create_task", TASK | {"board": "Back end"})], 0.0, "another board"),
    (SEND + CREATE, CREATE + SEND, 1.0, "+another order"), (SEND + CREATE, SEND, 0.0, "a change is missing"),
    (SEND + CREATE, CREATE, 0.0, "a change is missing"), (SEND + CREATE, SEND + CREATE + DELETE, 0.0, "a change too many"),
    ([], [], 1.0, "nothing may change, and nothing did"), ([], READ, 1.0, "nothing may change, and nothing did"),
    ([], SEND, 0.0, "nothing may change"), ([], DELETE, 0.0, "nothing may change"),
    ([], [*SEND, ("email_delete_email", {"email_id": "00000500"})], 1.0, "a change taken back"),
]  # fmt: skip
REFUSED: list[tuple[Any, str]] = [
    ([{"name": "email_delete_email", "arguments": {"email_id": "1"}}], "an expected call that fails"),
    ([{"name": "email_remove_email", "arguments": {}}], "an expected call of no tool"),
    ([{"arguments": {}}], "an expected call without a name"), ({}, "not a list"),
    ([{"name": "email_delete_email", "arguments": []}], "arguments that are a list"),
]  # fmt: skip


def _cases() -> Iterator[dict[str, Any]]:
    for expected, made, right, why in CASES:
        row = {"ground_truth": [{"name": name, "arguments": one} for name, one in expected]}
        items = [
            {
                "type": "function_call",
                "name": name,
                "arguments": json.dumps(one),
                "call_id": f"c{number}",
            }
            for number, (name, one) in enumerate(made)
        ]
        clothes = {"clothes": True} if why.startswith("+") else {}
        one = case(row, "", right, why.removeprefix("+"), **clothes)
        del one["answer"]
        yield one | {"items": items}
    for truth, why in REFUSED:
        yield case({"ground_truth": truth}, "x", None, why)


if __name__ == "__main__":
    write("workplace", _cases())
