"""What another program's row says, and the row that gymmesh has of it. Pure."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh_client.tasks import check_params, check_row
from gymmesh_data.imports.items import RowRefused
from gymmesh_data.rollout import Json, is_answer, made_id
from gymmesh_rows import COLUMNS

# Keys of a task's row that gymmesh reads itself; a column of one of these names must be what it is.
_TASK_KEYS: Final = ("task_id", "environment", "agent", "seed", "tags")


@dataclass(slots=True)
class Imported:
    """A row.

    Attributes:
        prompt: items before the model first said something.
        output: items after that; empty in a row that is only a task.
        tools: in the form of the Responses API.
        payload: further keys of the task: what a verifier compares with, and all else.
        task_id: empty: made of the content.
        repeat: which repeat of its task; None: counted.
        reward: None: not judged.
        reason: why this reward, where the row says so.
        components: parts of the reward, each with name and value.
        stop_reason: as gymmesh calls it; empty where it is not known.
        model: who answered.
        usage: `input_tokens`, `output_tokens`, `total_tokens`.
    """

    prompt: list[Json]
    output: list[Json] = field(default_factory=list)
    tools: list[Json] = field(default_factory=list)
    payload: Json = field(default_factory=dict)
    task_id: str = ""
    repeat: int | None = None
    reward: float | None = None
    reason: str = ""
    components: list[Json] = field(default_factory=list)
    stop_reason: str = ""
    model: str = ""
    usage: Json = field(default_factory=dict)


def task_row(imported: Imported, environment: str) -> Json:
    """A task for `gym-cli collect`. environment: of tasks that name none; may be empty. Raises
    RowRefused where it would be no task.
    """
    params: Json = {"input": imported.prompt}
    if imported.tools:
        params["tools"] = imported.tools
    row: Json = {}
    if imported.task_id:
        row["task_id"] = imported.task_id
    if environment and not isinstance(imported.payload.get("environment"), str):
        row["environment"] = environment
    row |= {"responses_create_params": params} | imported.payload
    if not any(item.get("role") == "user" for item in imported.prompt):
        raise RowRefused("input: has no message of the user")
    for key, problem in (*check_row(row), *check_params(params)):
        raise RowRefused(f"{key}: {problem}")
    return row


def rollout_row(imported: Imported, environment: str, repeat: int, source: str) -> Json:
    """A finished rollout, as `gym-cli collect` would have written it.

    Raises RowRefused where the model says nothing in it.

    Args:
        repeat: which repeat of its task, where the row does not say.
        source: the format that it was imported from.
    """
    if not any(is_answer(item) for item in imported.output):
        raise RowRefused("the model says nothing in it; import it with --as tasks")
    task = task_row(imported, environment)
    task_id = task.get("task_id") or made_id(task)
    params = task.pop("responses_create_params")
    number = repeat if imported.repeat is None else imported.repeat
    digest = hashlib.sha256(task_id.encode("utf-8", "surrogatepass")).hexdigest()
    calls = [item for item in imported.output if item.get("type") == "function_call"]
    judged = imported.reward is not None
    given = task.pop("metadata") if isinstance(task.get("metadata"), dict) else {}
    row: Json = {
        "responses_create_params": params,
        "response": {
            "id": f"imported-{task_id}-{number}",
            "object": "response",
            "model": imported.model,
            "status": "completed",
            "output": imported.output,
            "usage": imported.usage or None,
        },
        "reward": imported.reward,
        "task_id": task_id,
        "rollout_id": f"im-{digest[:20]}-{number}",
        "repeat_index": number,
        "environment": task.get("environment") or environment,
        "verification": {
            "status": "VERIFIED" if judged else "SKIPPED",
            "reward": imported.reward,
            "reason": imported.reason if judged else imported.reason or "imported without a reward",
            "components": imported.components,
            "verifier": source,
        },
        "stop_reason": imported.stop_reason or "MODEL_FINISHED",
        "metadata": given
        | {
            "steps_taken": _steps(imported.output),
            "tools_used": list(dict.fromkeys(call["name"] for call in calls)),
            "verified": judged,
            "imported_from": source,
        },
    }
    # As a collector's rows have keys of tasks whose names rows use themselves.
    extras = {key: task[key] for key in task if key in COLUMNS and key not in _TASK_KEYS}
    if extras:
        row["task_extras"] = extras
    return row | {key: value for key, value in task.items() if key not in row and key not in extras}


def number_of(value: Any) -> float | None:
    """A reward: a finite number, or what is as good as one; None for anything else."""
    if not isinstance(value, bool | int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def reward_of(row: Json) -> float | None:
    """The `reward` of a row; None where it has none. Raises RowRefused where it is no number."""
    value = row.get("reward")
    number = number_of(value)
    if number is None and value is not None:
        raise RowRefused("reward: must be a finite number or null")
    return number


def _steps(output: list[Json]) -> int:
    """Model calls: answers that do not follow one another."""
    said = [is_answer(item) for item in output]
    return sum(on and not before for on, before in zip(said, [False, *said[:-1]], strict=True))
