"""The task that a stored rollout was made of, put together again from its row. Pure.

A row holds every key of its task, and beside them the verifier's evidence. Which keys are evidence
alone is seen by their place: a row ends with them, in the evidence's order. A key of this kind that
the environment's own tasks have, too, is taken for the task's, and so is what is called like the
right answer, which no verifier found out.
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

    It has the parameters that were in force, tools of the environment included, which an
    environment replaces by its own of the same name.
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
    """The task's further keys: all that neither a collector nor a verifier added, as they were when
    the row was judged, which may have put them right.
    """
    return collected_payload(row, known) | corrections_of(row)


def corrections_of(row: Json) -> Json:
    """The keys of the task that its last verdict put right: see docs/how-to/reverify.md."""
    return object_of(object_of(object_of(row, "verification"), "reverified"), "task")


def collected_payload(row: Json, known: Collection[str] = ()) -> Json:
    """As `payload_of`, but as they were when the rollout was collected."""
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
        known: keys that are the task's wherever they stand.
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
