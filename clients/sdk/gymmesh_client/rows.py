"""Rollouts as rows of JSON lines: a superset of NeMo Gym's rollout rows. Pure.

A row of a completed rollout holds

- `responses_create_params`: the task's own, with tools, instructions and sampling parameters
  as they were in force, so that a trainer sees what the model saw;
- `first_items`: what the conversation began with, only where the agent or the environment
  added something to the task's input; what the model saw is this, else the input, and then
  `response.output`;
- `response`: see gymmesh_client.response;
- `reward`: the verdict's; null where there is none (PENDING, SKIPPED), and never 0 for that;
- every extra key of the task's row, and the verifier's evidence where no other key has the
  name (the whole evidence is in `verification`, too);
- the keys in OWN_KEYS. A task's key of one of these names is kept under `task_extras`;
  `metadata` is merged with the task's own where that is an object.

A row of a failed rollout has `failure` in place of `reward` and `verification`, and whatever
came before it in `response`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.rpc import error_details_pb2, status_pb2

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.response import (
    effective_params,
    items_with_media,
    params_document,
    rollout_response,
)
from gymmesh_client.tokens import token_notes
from gymmesh_responses import JsonValue, loads, text_of
from gymmesh_responses.jsonio import write

OWN_KEYS: Final = frozenset(
    (
        "responses_create_params",
        "first_items",
        "response",
        "reward",
        "task_id",
        "rollout_id",
        "run_id",
        "repeat_index",
        "attempt",
        "environment",
        "agent",
        "seed",
        "tags",
        "verification",
        "stop_reason",
        "stop_detail",
        "metadata",
        "model_usage",
        "failure",
        "task_extras",
    )
)


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed rollout: the failure, and what was known of the rollout before it."""

    failure: pb.Failure
    partial: pb.Rollout


def completed_row(task: pb.Task, rollout: pb.Rollout) -> dict[str, JsonValue]:
    """The row of a completed rollout.

    Raises:
        ValueError: the rollout is not completed, or its calls do not form a conversation.
    """
    if rollout.WhichOneof("outcome") != "completed":
        raise ValueError("only a completed rollout has a row")
    verification = _verification(rollout)
    row = _common(task, rollout)
    row["response"] = rollout_response(rollout)
    row["reward"] = verification["reward"]
    row |= _identity(task, rollout)
    row["verification"] = verification
    row["stop_reason"] = _name(pb.StopReason, rollout.completed.stop_reason, "STOP_REASON_")
    if rollout.completed.stop_detail:
        row["stop_detail"] = rollout.completed.stop_detail
    row["metadata"] = _metadata(rollout, verification["reward"] is not None)
    row |= _model_usage(rollout)
    return _with_extras(row, task, verification["evidence"])


def failure_row(task: pb.Task, failed: FailedAttempt) -> dict[str, JsonValue]:
    """The row of a failed rollout; it has no reward, and none may be inferred."""
    row = _common(task, failed.partial)
    row["response"] = rollout_response(failed.partial)
    row |= _identity(task, failed.partial)
    row["failure"] = _failure(failed.failure)
    row["metadata"] = _metadata(failed.partial, False)
    row |= _model_usage(failed.partial, _usage_of(failed.failure))
    return _with_extras(row, task, {})


def row_to_json(row: dict[str, JsonValue]) -> bytes:
    """A row as one line of JSON, without the newline.

    Faster than `dumps`, which also looks for NaN: rows are made of JSON and of numbers that the
    fold has found finite.
    """
    return write(row)


def _common(task: pb.Task, rollout: pb.Rollout) -> dict[str, JsonValue]:
    own = params_document(task.params)
    params = own | effective_params(rollout)
    if "input" in own:
        params["input"] = own["input"]
    else:
        params.pop("input", None)
    row: dict[str, JsonValue] = {"responses_create_params": params}
    if rollout.HasField("started") and not _begins_with_input(task, rollout):
        row["first_items"] = items_with_media(list(rollout.started.items), rollout)
    return row


def _begins_with_input(task: pb.Task, rollout: pb.Rollout) -> bool:
    items, params = list(rollout.started.items), task.params
    if params.HasField("input_text"):
        return (
            len(items) == 1
            and items[0].message.role == "user"
            and text_of(items[0]) == params.input_text
        )
    return items == list(params.input)


def _identity(task: pb.Task, rollout: pb.Rollout) -> dict[str, JsonValue]:
    row: dict[str, JsonValue] = {
        "task_id": rollout.task_id or task.task_id,
        "rollout_id": rollout.rollout_id,
        "run_id": rollout.run_id,
        "repeat_index": rollout.repeat_index,
        "attempt": rollout.attempt,
        "environment": rollout.started.environment or task.environment,
        "agent": rollout.started.agent or task.agent,
    }
    if task.HasField("seed"):
        row["seed"] = task.seed
    if task.tags:
        row["tags"] = dict(sorted(task.tags.items()))
    return row


def _verification(rollout: pb.Rollout) -> dict[str, Any]:
    if not rollout.HasField("verified"):
        reason = "the agent sent no verdict"
        return {"status": "SKIPPED", "reward": None, "reason": reason, "evidence": {}}
    return verification_row(rollout.verified.verification)


def verification_row(verdict: pb.Verification) -> dict[str, Any]:
    """A verdict as rows hold it under `verification`."""
    components: list[JsonValue] = []
    for part in verdict.components:
        weight = {"weight": part.weight} if part.HasField("weight") else {}
        components.append({"name": part.name, "value": part.value, **weight})
    return {
        "status": _name(pb.VerificationStatus, verdict.status, "VERIFICATION_STATUS_"),
        "reward": verdict.reward if verdict.HasField("reward") else None,
        "reason": verdict.reason,
        "components": components,
        "verifier": verdict.verifier,
        "version": verdict.verifier_version,
        "stages": [
            {"name": stage.name, "duration_us": stage.duration_us, "note": stage.note}
            for stage in verdict.stages
        ],
        "evidence": loads(verdict.evidence_json) if verdict.evidence_json else {},
    }


def _metadata(rollout: pb.Rollout, verified: bool) -> dict[str, JsonValue]:
    tools = dict.fromkeys(record.completed.name for record in rollout.tool_calls)
    seed = {"seed": rollout.started.seed} if rollout.started.HasField("seed") else {}
    return {
        "steps_taken": sum(not call.actor for call in rollout.model_calls),
        "tools_used": list(tools),
        "verified": verified,
        **seed,
        **token_notes(rollout),
        "timings": _timings(rollout),
    }


def _model_usage(
    rollout: pb.Rollout, of_failure: Sequence[pb.ModelCallUsage] = ()
) -> dict[str, JsonValue]:
    """What the environment's own model calls consumed, by model: its turns', the verdict's, and
    those of a turn or verdict that failed.
    """
    reported = [entry for turn in rollout.turns for entry in turn.model_usage]
    reported += rollout.verified.verification.model_usage
    reported += of_failure
    sums: dict[str, dict[str, Any]] = {}
    for entry in reported:
        known = sums.setdefault(
            entry.model,
            {"model": entry.model, "calls": 0, "input_tokens": 0, "output_tokens": 0},
        )
        known["calls"] += entry.calls
        known["input_tokens"] += entry.input_tokens
        known["output_tokens"] += entry.output_tokens
    return {"model_usage": list(sums.values())} if sums else {}


def _usage_of(failure: pb.Failure) -> list[pb.ModelCallUsage]:
    """What a failed turn or verdict says that it consumed; see verify.proto."""
    said: Any = status_dict(failure.status)["metadata"]
    try:
        return [
            pb.ModelCallUsage(model=model, calls=calls, input_tokens=read, output_tokens=written)
            for model, calls, read, written in loads(said["model_usage"].encode())
        ]
    except (KeyError, TypeError, ValueError):
        # Nothing, or what another implementation means by it.
        return []


def _timings(rollout: pb.Rollout) -> dict[str, JsonValue]:
    """When it started (seconds since 1970), and microseconds in all and by kind of call."""
    ended = rollout.completed if rollout.HasField("completed") else rollout.failed
    return {
        "started_at": rollout.started_unix_nano / 1e9,
        "duration_us": ended.duration_us,
        "model_us": sum(call.timings.total_us for call in rollout.model_calls),
        "tools_us": sum(record.completed.timings.total_us for record in rollout.tool_calls),
        "verify_us": rollout.verified.timings.total_us,
    }


def _failure(failure: pb.Failure) -> dict[str, JsonValue]:
    return {
        "boundary": _name(pb.Boundary, failure.boundary, "BOUNDARY_"),
        "status": status_dict(failure.status),
        "retry_safe": failure.retry_safe,
        "component": failure.component,
        "call_id": failure.call_id,
    }


def status_dict(status: status_pb2.Status) -> dict[str, JsonValue]:
    """A status as JSON: code, message, and the reason and metadata of its ErrorInfo."""
    info = error_details_pb2.ErrorInfo()
    for detail in status.details:
        if detail.Unpack(info):
            break
    return {
        "code": status.code,
        "message": status.message,
        "reason": info.reason,
        "metadata": dict(sorted(info.metadata.items())),
    }


def _with_extras(
    row: dict[str, JsonValue], task: pb.Task, evidence: JsonValue
) -> dict[str, JsonValue]:
    extras = loads(task.payload_json) if task.payload_json else {}
    kept: dict[str, JsonValue] = {}
    for key, value in extras.items():
        if key not in OWN_KEYS:
            row[key] = value
        elif key == "metadata" and type(value) is dict:
            kept_parts = {name: value[name] for name in value if name in row["metadata"]}
            row["metadata"] = value | row["metadata"]
            if kept_parts:
                kept["metadata"] = kept_parts
        else:
            kept[key] = value
    if kept:
        row["task_extras"] = kept
    if type(evidence) is dict:
        for key, value in evidence.items():
            if key not in OWN_KEYS:
                row.setdefault(key, value)
    return row


def _name(enum: Any, value: int, prefix: str) -> str:
    """An enum value's name without its prefix; its number for one of a later contract."""
    try:
        return str(enum.Name(value)).removeprefix(prefix)
    except ValueError:
        return str(value)
