"""Rollouts as rows of JSON lines: a superset of NeMo Gym's rollout rows. Pure.

A row of a completed rollout holds

- `responses_create_params`: the task's own, with tools, instructions and sampling parameters
  as they were in force, so that a trainer sees what the model saw;
- `first_items`: what the conversation began with, only where the agent or the environment
  added something to the task's input; what the model saw is this, else the input, and then
  `response.output`;
- `response`: see gymmesh_client.rows.response;
- `reward`: the verdict's; null where there is none (PENDING, SKIPPED), and never 0 for that;
- every extra key of the task's row, and the verifier's evidence where no other key has the
  name (the whole evidence is in `verification`, too);
- `actors`, only where others than the root agent called models: see gymmesh_client.rows.actors;
- `final_state`, only where the environment keeps it: `state`, what the session had when it was
  judged, or `omitted`, why it is not kept; it may hold expected answers;
- the keys in OWN_KEYS. A task's key of one of these names is kept under `task_extras`;
  `metadata` is merged with the task's own where that is an object.

A row of a failed rollout has `failure` in place of `reward` and `verification`, and whatever
came before it in `response`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.boundaries import BOUNDARIES, EnumNames
from gymmesh_client.rollout import RolloutParts, RolloutReading, read, token_notes
from gymmesh_client.rows.actors import actors_of
from gymmesh_client.rows.request import extras_of, first_items, request_of
from gymmesh_client.rows.response import rollout_response
from gymmesh_client.summary import Counted, judge_of
from gymmesh_responses import JsonValue, loads
from gymmesh_responses.jsonio import write
from gymmesh_runtime.errors import from_status

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
        "final_state",
        "stop_reason",
        "stop_detail",
        "metadata",
        "model_usage",
        "actors",
        "failure",
        "task_extras",
    )
)


_STOP_REASONS: Final = EnumNames(pb.StopReason, "STOP_REASON_")
_VERDICTS: Final = EnumNames(pb.VerificationStatus, "VERIFICATION_STATUS_")


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed rollout: the failure, and what was known of the rollout before it."""

    failure: pb.Failure
    partial: pb.Rollout


def completed_row(task: pb.Task, rollout: pb.Rollout) -> dict[str, JsonValue]:
    """The row of a completed rollout. What it has of its task may be shared with other rows: not to
    be changed.

    Raises:
        ValueError: the rollout is not completed, or its calls do not form a conversation.
    """
    return row_of(task, read(RolloutParts.of(rollout)))


def row_of(task: pb.Task, reading: RolloutReading) -> dict[str, JsonValue]:
    """As `completed_row`."""
    parts = reading.parts
    completed = parts.completed
    if completed is None:
        raise ValueError("only a completed rollout has a row")
    verification = _no_verdict() if parts.verified is None else _verdict_row(parts)
    row = _opening(task, reading)
    row["reward"] = verification["reward"]
    _put_identity(row, task, parts)
    row["verification"] = verification
    if (kept := _final_state(parts)) is not None:
        row["final_state"] = kept
    row["stop_reason"] = _STOP_REASONS[completed.stop_reason]
    if completed.stop_detail:
        row["stop_detail"] = completed.stop_detail
    row["metadata"] = _metadata(reading, completed.duration_us, verification["reward"] is not None)
    _put_model_usage(row, reading, ())
    if reading.actors:
        row["actors"] = actors_of(reading)
    return _with_extras(row, extras_of(task), verification["evidence"])


def failure_row(task: pb.Task, failed: FailedAttempt) -> dict[str, JsonValue]:
    """The row of a failed rollout; it has no reward, and none may be inferred."""
    failure, parts = failed.failure, RolloutParts.of(failed.partial)
    reading = read(parts)
    row = _opening(task, reading)
    _put_identity(row, task, parts)
    row["failure"] = {
        "boundary": BOUNDARIES[failure.boundary],
        "status": status_dict(failure.status),
        "retry_safe": failure.retry_safe,
        "component": failure.component,
        "call_id": failure.call_id,
    }
    ended = parts.completed or parts.failed
    row["metadata"] = _metadata(reading, 0 if ended is None else ended.duration_us, False)
    _put_model_usage(row, reading, from_status(failure.status).usage)
    if reading.actors:
        row["actors"] = actors_of(reading)
    return _with_extras(row, extras_of(task), {})


def completed_line(task: pb.Task, parts: RolloutParts) -> tuple[bytes, Counted]:
    """The row of a completed rollout as one line of JSON, and what there is to count of it.

    Raises as `completed_row`.
    """
    reading = read(parts)
    row = row_of(task, reading)
    figures = Counted(
        row["task_id"],
        row["stop_reason"],
        row["verification"]["status"],
        row["reward"],
        reading.input_tokens,
        reading.output_tokens,
        len(parts.calls),
        reading.queue_us,
        judge_of(row["environment"], row["verification"]),
        row["verification"].get("explanation", ""),
        reading.endpoint_us,
        reading.retries,
    )
    return row_to_json(row), figures


def row_to_json(row: dict[str, JsonValue]) -> bytes:
    """A row as one line of JSON, without the newline. Unlike `dumps` it does not look for NaN: rows
    are made of JSON and of numbers that the fold has found finite.
    """
    return write(row)


def _opening(task: pb.Task, reading: RolloutReading) -> dict[str, JsonValue]:
    started = reading.parts.started
    params, echoed = request_of(task, started)
    row: dict[str, JsonValue] = {"responses_create_params": params}
    items = first_items(task, started)
    if items is not None:
        row["first_items"] = items
    row["response"] = rollout_response(reading) | echoed
    return row


def _put_identity(row: dict[str, JsonValue], task: pb.Task, parts: RolloutParts) -> None:
    started = parts.started or pb.Started()
    row["task_id"] = parts.task_id or task.task_id
    row["rollout_id"] = parts.rollout_id
    row["run_id"] = parts.run_id
    row["repeat_index"] = parts.repeat_index
    row["attempt"] = parts.attempt
    row["environment"] = started.environment or task.environment
    row["agent"] = started.agent or task.agent
    if task.HasField("seed"):
        row["seed"] = task.seed
    if task.tags:
        row["tags"] = dict(sorted(task.tags.items()))


def _no_verdict() -> dict[str, Any]:
    reason = "the agent sent no verdict"
    return {"status": "SKIPPED", "reward": None, "reason": reason, "evidence": {}}


def verification_row(verification: pb.Verification) -> dict[str, Any]:
    """A verdict as rows hold it under `verification`."""
    parts = RolloutParts("", 0, "", "", 0)
    parts.judge(pb.Verified(verification=verification))
    return _verdict_row(parts)


def _verdict_row(parts: RolloutParts) -> dict[str, Any]:
    said = parts.verification
    components: list[JsonValue] = []
    for part in parts.components:
        weight = {"weight": part.weight} if part.HasField("weight") else {}
        components.append({"name": part.name, "value": part.value, **weight})
    stages: list[JsonValue] = []
    for stage in said.stages:
        stages.append({"name": stage.name, "duration_us": stage.duration_us, "note": stage.note})
    evidence = said.evidence_json
    row: dict[str, Any] = {
        "status": _VERDICTS[said.status],
        "reward": parts.reward,
        "reason": said.reason,
        "components": components,
        "verifier": said.verifier,
        "version": said.verifier_version,
        "stages": stages,
        "evidence": loads(evidence) if evidence else {},
    }
    if said.explanation:
        row["explanation"] = said.explanation
    if said.compat:
        row["compat"] = said.compat
    return row


def _final_state(parts: RolloutParts) -> dict[str, JsonValue] | None:
    """What is kept of the session, for a later verdict; None: nothing."""
    if parts.verified is None or not parts.verified.HasField("final_state"):
        return None
    kept = parts.verified.final_state
    if kept.state_json:
        return {"state": loads(kept.state_json)}
    return {"omitted": kept.omitted}


def _metadata(reading: RolloutReading, duration_us: int, judged: bool) -> dict[str, JsonValue]:
    started, verified = reading.parts.started, reading.parts.verified
    row: dict[str, JsonValue] = {
        "steps_taken": reading.steps,
        "tools_used": list(dict.fromkeys([name for name, _ in reading.tool_outcomes])),
        "tool_outcomes": [
            {"name": name, "outcome": outcome, "calls": calls}
            for (name, outcome), calls in reading.tool_outcomes.items()
        ],
        "verified": judged,
    }
    if started is not None and started.HasField("seed"):
        row["seed"] = started.seed
    if reading.captured:
        row |= token_notes(reading.captured)
    # When it started (seconds since 1970), and microseconds in all and by kind of call.
    row["timings"] = {
        "started_at": reading.parts.started_unix_nano / 1e9,
        "duration_us": duration_us,
        "model_us": reading.model_us,
        "tools_us": reading.tools_us,
        "verify_us": 0 if verified is None else verified.timings.total_us,
    }
    if reading.timed:
        row["model_calls"] = [_timed(call) for call in reading.timed]
    return row


def _timed(call: pb.ModelCallCompleted) -> dict[str, JsonValue]:
    """Where a model call's time went, in microseconds, and its retries by reason."""
    timings = call.timings
    return {
        "call_id": call.call_id,
        "total_us": timings.total_us,
        "queue_us": timings.queue_us,
        "endpoint_us": timings.endpoint_us,
        "retry_us": timings.retry_us,
        "retries": {one.reason: one.count for one in call.retries},
    }


def _put_model_usage(
    row: dict[str, JsonValue], reading: RolloutReading, others: Sequence[pb.ModelCallUsage]
) -> None:
    """What the environment's own model calls consumed, by model: its turns', its verdict's, and
    `others`, which are those of a turn or verdict that failed.
    """
    turns, judging = reading.parts.turns, reading.parts.verification.model_usage
    if not (turns or judging or others):
        return
    sums: dict[str, dict[str, Any]] = {}
    for of_one in (*[turn.model_usage for turn in turns], judging, others):
        for entry in of_one:
            known = sums.setdefault(
                entry.model,
                {"model": entry.model, "calls": 0, "input_tokens": 0, "output_tokens": 0},
            )
            known["calls"] += entry.calls
            known["input_tokens"] += entry.input_tokens
            known["output_tokens"] += entry.output_tokens
    if sums:
        row["model_usage"] = list(sums.values())


def status_dict(status: status_pb2.Status) -> dict[str, JsonValue]:
    """A status as JSON: code, message, and the reason and metadata of its ErrorInfo."""
    info = error_details_pb2.ErrorInfo()
    for detail in status.details:
        with suppress(DecodeError):  # of a detail that is none
            if detail.Unpack(info):
                break
    return {
        "code": status.code,
        "message": status.message,
        "reason": info.reason,
        "metadata": dict(sorted(info.metadata.items())),
    }


def _with_extras(
    row: dict[str, JsonValue], extras: dict[str, JsonValue], evidence: JsonValue
) -> dict[str, JsonValue]:
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
    if evidence and type(evidence) is dict:
        for key, value in evidence.items():
            if key not in OWN_KEYS:
                row.setdefault(key, value)
    return row
