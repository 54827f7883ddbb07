"""A sample of a log of Inspect. Pure. Source: inspect_ai.log, version 2 of its schema."""

from __future__ import annotations

from typing import Any, Final

from gymmesh_data.imports.imported import Imported, number_of
from gymmesh_data.imports.items import RowRefused, first_answer, items_of, tools_of
from gymmesh_data.rollout import Json, list_of, object_of, text_of

_ATTACHED: Final = "attachment://"
# As Inspect's own metrics count its letters.
_LETTERS: Final = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_STOPS: Final = {"max_tokens": "MAX_OUTPUT_TOKENS", "model_length": "CONTEXT_LENGTH"}
_OURS: Final = (
    *("task_id", "rollout_id", "repeat_index", "stop_reason", "steps_taken", "tools_used"),
    *("tool_outcomes", "verified", "weights_versions"),
)
_LIMITS: Final = {"message": "MAX_STEPS", "token": "MAX_OUTPUT_TOKENS", "context": "CONTEXT_LENGTH"}


def of_sample(sample: Json) -> tuple[Imported, dict[str, float | None]]:
    """A sample, and its scores by name; None for a score that is not a number. Raises RowRefused if
    it is not a sample, or its run failed.
    """
    if "input" not in sample or "id" not in sample:
        raise RowRefused(
            "lacks the key 'id' or 'input', so this row is not a sample of an Inspect log"
        )
    if isinstance(sample.get("error"), dict):
        raise RowRefused(
            f"this sample failed in Inspect: {str(sample['error'].get('message'))[:200]}"
        )
    attached = sample.get("attachments")
    sample = _attached(sample, attached) if isinstance(attached, dict) and attached else sample
    prompt = items_of(sample["input"], "input")
    items = items_of(list_of(sample, "messages"), "messages")
    # Solvers put system messages and more before or into the input: what the model saw counts.
    cut = first_answer(items)
    imported = Imported(items[:cut] or prompt, items[cut:])
    told = object_of(sample, "metadata")
    imported.task_id = str(sample["id"])
    if isinstance(sample.get("epoch"), int):
        imported.repeat = max(sample["epoch"] - 1, 0)
    imported.tools = tools_of(told.get("tools"), "metadata.tools")
    imported.payload = _payload(sample, told)
    output = object_of(sample, "output")
    imported.model, imported.usage = text_of(output, "model"), object_of(output, "usage")
    match list_of(output, "choices"):
        case [dict(choice), *_]:
            imported.stop_reason = _STOPS.get(str(choice.get("stop_reason")), "")
    if isinstance(limit := sample.get("limit"), dict):
        imported.stop_reason = _LIMITS.get(str(limit.get("type")), "AGENT_RULE")
    if isinstance(told.get("stop_reason"), str):
        imported.stop_reason = told["stop_reason"]
    return imported, _scores(sample, imported)


def _payload(sample: Json, told: Json) -> Json:
    payload: Json = {}
    if sample.get("target") not in (None, "", []):
        payload["expected_answer"] = sample["target"]
    if sample.get("choices"):
        payload["choices"] = sample["choices"]
    for key in ("environment", "tags"):
        if isinstance(told.get(key), str | dict) and told[key]:
            payload[key] = told[key]
    # What our own export says of the rollout is not the task's.
    known = {"tokens", "tools", *payload, *(_OURS if "rollout_id" in told else ())}
    left = {key: value for key, value in told.items() if key not in known}
    if left:
        payload["inspect_metadata"] = left
    return payload


def _scores(sample: Json, imported: Imported) -> dict[str, float | None]:
    found = dict[str, float | None]()
    for name, score in object_of(sample, "scores").items():
        if not isinstance(score, dict):
            continue
        value = score.get("value")
        letter = _LETTERS.get(value) if isinstance(value, str) else None
        found[name] = number_of(value) if letter is None else letter
        if isinstance(score.get("explanation"), str) and not imported.reason:
            imported.reason = score["explanation"]
    return found


def _attached(value: Any, attached: Json) -> Any:
    """A value with the long texts that Inspect keeps apart put back in their places."""
    if isinstance(value, str):
        if value.startswith(_ATTACHED):
            return attached.get(value.removeprefix(_ATTACHED), value)
        return value
    if isinstance(value, dict):
        return {
            key: one if key == "attachments" else _attached(one, attached)
            for key, one in value.items()
        }
    return [_attached(one, attached) for one in value] if isinstance(value, list) else value
