"""The task that a stored rollout was made of, put together again from its row. Pure."""

from __future__ import annotations

from typing import Final

from gymmesh_client.rows import OWN_KEYS
from gymmesh_data.rollout import Json, StoredRollout

_KEPT: Final = ("environment", "agent", "seed", "tags")
_NOTES: Final = frozenset(
    ("steps_taken", "tools_used", "verified", "seed", "weights_versions", "token_forks", "timings")
)
# Where task files have what a verifier compares with, the most telling first.
_ANSWERS: Final = (
    "expected_answer",
    "ground_truth",
    "answer",
    "target",
    "solution",
    "correct_answer",
    "label",
)


def task_of(rollout: StoredRollout) -> Json:
    """The row of the rollout's task, for `gym-cli collect`.

    It has the parameters that were in force, tools of the environment included, which an
    environment replaces by its own of the same name; and also what the verifier's evidence put
    beside the task's keys, since a row does not tell one from the other.
    """
    row = rollout.row
    task: Json = {
        "task_id": rollout.task_id,
        "responses_create_params": row["responses_create_params"],
    }
    task |= {key: row[key] for key in _KEPT if row.get(key) not in (None, "")}
    task |= {key: value for key, value in row.items() if key not in OWN_KEYS}
    extras = row.get("task_extras")
    held = extras if isinstance(extras, dict) else {}
    metadata = {key: value for key, value in rollout.metadata.items() if key not in _NOTES}
    if isinstance(held.get("metadata"), dict):
        metadata |= held["metadata"]
    if metadata:
        task["metadata"] = metadata
    task |= {key: value for key, value in held.items() if key not in ("metadata", "task_id")}
    return task


def answer_of(task: Json) -> object:
    """What the task's verifier compares with, as far as its keys tell; None where they do not."""
    return next((task[key] for key in _ANSWERS if task.get(key) is not None), None)
