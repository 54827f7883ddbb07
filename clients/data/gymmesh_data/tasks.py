"""The task of a stored rollout, rebuilt from its row. Pure.

A row holds every key of its task, followed by the keys of the verifier's evidence. The last keys of
a row that equal the evidence, in the evidence's order, are evidence. Two kinds of these keys belong
to the task all the same: keys that the environment's own tasks have, too, and keys with a name for
the right answer, because no verifier finds the right answer itself.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gymmesh_data.rollout import Json, StoredRollout, object_of
from gymmesh_rows import beside_columns, own_metadata

_KEPT: Final = ("environment", "agent", "seed", "tags")
_TRUTHS: Final = frozenset(("expected_answer", "ground_truth", "correct_answer"))
# Where task files have what a verifier compares with, the most telling first.
_ANSWERS: Final = (
    *("expected_answer", "ground_truth", "answer", "target", "solution", "correct_answer"),
    "label",
)


def task_of(rollout: StoredRollout) -> Json:
    """The row of the rollout's task, for `gym-cli collect`.

    The row has the parameters of the rollout, including the environment's tools. An environment
    replaces such tools by its own tools with the same names.
    """
    row = rollout.row
    task: Json = {
        "task_id": rollout.task_id,
        "responses_create_params": dict(rollout.columns.params),
    }
    task |= {key: row[key] for key in _KEPT if row.get(key) not in (None, "")}
    payload = payload_of(row)
    payload.pop("task_id", None)
    return task | payload


def payload_of(row: Json, known: Collection[str] = ()) -> Json:
    """The task's own keys: all keys that neither a collector nor a verifier added. Their values are
    those of the last verdict, which may have corrected them.
    """
    return collected_payload(row, known) | corrections_of(row)


def corrections_of(row: Json) -> Json:
    """The keys of the task that its last verdict corrected: see docs/how-to/reverify.md."""
    return object_of(object_of(object_of(row, "verification"), "reverified"), "task")


def collected_payload(row: Json, known: Collection[str] = ()) -> Json:
    """As `payload_of`, but with the values from when the rollout was collected."""
    evidence = evidence_keys(row, known)
    payload = {key: value for key, value in beside_columns(row).items() if key not in evidence}
    if own := own_metadata(row):
        payload["metadata"] = own
    for key, value in object_of(row, "task_extras").items():
        both = (
            key == "metadata" and isinstance(value, dict) and isinstance(row.get("metadata"), dict)
        )
        payload[key] = payload.get(key, {}) | value if both else value
    return payload


def evidence_keys(row: Json, known: Collection[str] = ()) -> frozenset[str]:
    """The row's keys that only the verifier's evidence brought.

    Args:
        known: keys that belong to the task at any place in the row.
    """
    evidence = object_of(object_of(row, "verification"), "evidence")
    places = {key: place for place, key in enumerate(evidence)}
    found: list[str] = []
    before = len(places)
    beside = beside_columns(row)
    for key in reversed(row):
        place = places.get(key, before)
        if key not in beside or place >= before or row[key] != evidence[key]:
            break
        before = place
        if key not in known and key not in _TRUTHS:
            found.append(key)
    return frozenset(found)


def answer_of(task: Json) -> object:
    """The expected answer of the task, if its keys have one; otherwise None."""
    return next((task[key] for key in _ANSWERS if task.get(key) is not None), None)
