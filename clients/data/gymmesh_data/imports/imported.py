"""What another program's row says, and the row that gymmesh has of it. Pure."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh_client.tasks import check_params, check_row
from gymmesh_data.imports.items import RowRefused
from gymmesh_data.rollout import Json, is_answer, made_id, object_of, text_of
from gymmesh_rows import COLUMNS, METADATA_COLUMNS, calls_of

# Keys of a task's row that a rollout's row has, too: those that need not be texts in a task, and
# those that must be what they are.
_NAMES: Final = ("task_id", "environment", "agent")
_OTHER_KEYS: Final = frozenset(("seed", "tags"))


@dataclass(slots=True)
class Imported:
    """A row.

    Attributes:
        prompt: the items before the model's first item.
        output: the items after the prompt; empty for a row that is only a task.
        tools: the tools, in the form of the Responses API.
        payload: further keys of the task, such as the expected answer.
        task_id: empty: derived from the content.
        repeat: the repeat of its task; None: counted.
        reward: None for a rollout without a verdict.
        reason: the reason of the reward, if the row has one.
        components: parts of the reward, each with name and value.
        stop_reason: gymmesh's name for it; empty if unknown.
        model: the model that answered.
        usage: `input_tokens`, `output_tokens`, `total_tokens`.
        environment: the environment that judges a known data set, unless the caller names a
            different one.
        text_answer: whether the expected answer may be a long text.
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
    environment: str = ""
    text_answer: bool = False


def task_row(imported: Imported, environment: str) -> Json:
    """A task for `gym-cli collect`. environment: the environment of tasks that name none; may be
    empty. Raises RowRefused if the row makes no valid task.
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
        raise RowRefused("input: has no user message")
    for key, problem in (*check_row(row), *check_params(params)):
        raise RowRefused(f"{key}: {problem}")
    return row


def refuse_no_prompt(imported: Imported) -> None:
    """Refuse a task that asks the model nothing. Raises RowRefused."""
    asked = [item.get("content") for item in imported.prompt if item.get("role") == "user"]
    if asked and not any(_is_said(content) for content in asked):
        raise RowRefused("input: each user message is empty")


def _is_said(content: Any) -> bool:
    if isinstance(content, str):
        return bool(content.strip())
    return any(part.get("type") != "input_text" or part["text"].strip() for part in content or ())


def rollout_row(imported: Imported, environment: str, repeat: int, source: str) -> Json:
    """A finished rollout, as `gym-cli collect` would have written it.

    Raises RowRefused if the rollout has no text by the model.

    Args:
        repeat: the repeat's index, if the row does not have it.
        source: the format that it was imported from.
    """
    if not any(is_answer(item) for item in imported.output):
        raise RowRefused(
            "has no text by the model, so this row is not a rollout. Import the file with --as "
            "tasks"
        )
    task = task_row(imported, environment)
    params = task.pop("responses_create_params")
    names = {key: text_of(task, key) for key in _NAMES}
    if isinstance(task.get("task_id"), int):
        names["task_id"] = str(task["task_id"])
    task_id = names["task_id"] or made_id(task | {"responses_create_params": params})
    number = repeat if imported.repeat is None else imported.repeat
    digest = hashlib.sha256(task_id.encode("utf-8", "surrogatepass")).hexdigest()
    rollout_id = f"im-{digest[:20]}-{number}"
    # Keys of the task that rows use themselves, as in a collector's rows.
    own = {key for key in _NAMES if task.get(key) == names[key]} | _OTHER_KEYS
    extras: Json = {key: task[key] for key in task if key in COLUMNS and key not in own}
    metadata: Json = {}
    if isinstance(extras.get("metadata"), dict):
        given = extras.pop("metadata")
        metadata = {key: value for key, value in given.items() if key not in METADATA_COLUMNS}
        if hidden := {key: value for key, value in given.items() if key in METADATA_COLUMNS}:
            extras["metadata"] = hidden
    row: Json = {
        "responses_create_params": params,
        "response": _response(imported, rollout_id),
        "reward": imported.reward,
        "task_id": task_id,
        "rollout_id": rollout_id,
        "run_id": "",
        "repeat_index": number,
        "attempt": 1,
        "environment": names["environment"] or environment,
        "agent": names["agent"],
        "verification": _verification(imported, source),
        "stop_reason": imported.stop_reason or "MODEL_FINISHED",
        "metadata": _metadata(imported) | metadata | {"imported_from": source},
        "calls": calls_of(imported.output, imported.model),
    }
    if extras:
        row["task_extras"] = extras
    known = {*row, *extras, "metadata"}
    return row | {key: value for key, value in task.items() if key not in known}


def _response(imported: Imported, rollout_id: str) -> Json:
    usage, details = imported.usage, ("input_tokens_details", "output_tokens_details")
    cached, reasoning = (object_of(usage, key) for key in details)
    return {
        "id": rollout_id,
        "object": "response",
        "created_at": 0.0,
        "model": imported.model,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "output": imported.output,
        "usage": {
            "input_tokens": _count(usage, "input_tokens"),
            "input_tokens_details": {"cached_tokens": _count(cached, "cached_tokens")},
            "output_tokens": _count(usage, "output_tokens"),
            "output_tokens_details": {"reasoning_tokens": _count(reasoning, "reasoning_tokens")},
            "total_tokens": _count(usage, "total_tokens"),
        },
    }


def _verification(imported: Imported, source: str) -> Json:
    judged = imported.reward is not None
    return {
        "status": "VERIFIED" if judged else "SKIPPED",
        "reward": imported.reward,
        "components": imported.components,
        "evidence": {},
        "verifier": source,
        "version": "",
        "stages": [],
        "reason": imported.reason if judged else imported.reason or "imported without a reward",
    }


def _metadata(imported: Imported) -> Json:
    calls = [item for item in imported.output if item.get("type") == "function_call"]
    times = ("duration_us", "model_us", "tools_us", "verify_us")
    return {
        "steps_taken": _steps(imported.output),
        "tools_used": list(dict.fromkeys(call["name"] for call in calls)),
        "tool_outcomes": [],
        "verified": imported.reward is not None,
        "weights_versions": [],
        "timings": {"started_at": 0.0} | dict.fromkeys(times, 0),
    }


def _count(usage: Json, key: str) -> int:
    value = usage.get(key)
    return value if type(value) is int and value >= 0 else 0


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
    """The `reward` of a row; None if it has none. Raises RowRefused if it is not a number."""
    value = row.get("reward")
    number = number_of(value)
    if number is None and value is not None:
        raise RowRefused("reward: must be a finite number or null")
    return number


def _steps(output: list[Json]) -> int:
    """Model calls: answers that do not follow one another."""
    said = [is_answer(item) for item in output]
    return sum(on and not before for on, before in zip(said, [False, *said[:-1]], strict=True))
