"""Rollouts as rows of JSON lines, as gymmesh/row/v1/row.proto has them. Pure.

The columns that a rollout's messages have are copied by generated code (gymmesh_rows.columns); here
is how the others are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from msgspec import UNSET, UnsetType

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.boundaries import BOUNDARIES
from gymmesh_client.group_faults import group_fault
from gymmesh_client.rollout import RolloutParts, RolloutReading, as_int64, as_uint32, read
from gymmesh_client.rows.calls import RowCalls, actors_of, all_tokens
from gymmesh_client.rows.request import TaskExtras, extras_of, first_items, names_of, request_of
from gymmesh_client.rows.response import rollout_response
from gymmesh_client.summary import Counted, judged_by
from gymmesh_responses import JsonValue, dumps_clean, loads
from gymmesh_rows import (
    COLUMNS,
    EnumNames,
    ModelCallUsage,
    RowFailure,
    RowMetadata,
    RowStatus,
    RowTimings,
    ToolCall,
    ToolOutcomeCount,
    Turn,
    Verification,
    row_line,
)
from gymmesh_rows.values import encode, overlaid, with_overlay
from gymmesh_runtime.errors import from_status

_STOP_REASONS: Final = EnumNames(pb.StopReason, "STOP_REASON_")
_VERDICTS: Final = EnumNames(pb.VerificationStatus, "VERIFICATION_STATUS_")
# Calls, from which on what a row was made of is freed a few at a time.
_MANY: Final = 4096
_NO_VERDICT: Final = pb.Verified(
    verification=pb.Verification(
        status=pb.VERIFICATION_STATUS_SKIPPED, reason="the agent sent no verdict"
    )
)


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed rollout: the failure, and the part of the rollout before it.

    Attributes:
        size: bytes of its events; 0: not counted.
    """

    failure: pb.Failure
    partial: pb.Rollout
    size: int = 0


def completed_row(task: pb.Task, rollout: pb.Rollout) -> dict[str, JsonValue]:
    """The row of a completed rollout, parsed.

    Raises:
        ValueError: the rollout is not completed, its calls do not form a conversation, or it has
            values that JSON cannot represent.
    """
    row: dict[str, JsonValue] = loads(completed_line(task, RolloutParts.of(rollout))[0])
    return row


def failure_row(task: pb.Task, failed: FailedAttempt) -> dict[str, JsonValue]:
    """The row of a failed rollout, parsed; it has no reward, and none may be inferred."""
    row: dict[str, JsonValue] = loads(failure_line(task, failed))
    return row


def completed_line(task: pb.Task, parts: RolloutParts) -> tuple[bytes, Counted]:
    """The row of a completed rollout as one line of JSON, and what there is to count of it.

    Raises as `completed_row`.
    """
    completed = parts.completed
    if completed is None:
        raise ValueError("only a completed rollout has a row")
    reading = read(parts)
    verified = parts.verified or _NO_VERDICT
    line = _line(task, reading, verified, completed.duration_us, ())
    verdict = verified.verification
    environment = (parts.started or _NOT_STARTED).environment or task.environment
    input_tokens, output_tokens = all_tokens(reading)
    return line, Counted(
        parts.task_id or task.task_id,
        _STOP_REASONS[completed.stop_reason],
        _VERDICTS[verdict.status],
        parts.reward,
        input_tokens,
        output_tokens,
        len(parts.calls),
        reading.queue_us,
        judged_by(environment, verdict.verifier, verdict.verifier_version, verdict.compat),
        verdict.explanation,
        reading.endpoint_us,
        reading.retries,
        verified.final_state.omitted if verified.HasField("final_state") else "",
        group_fault(verdict.reason),
    )


def failure_line(task: pb.Task, failed: FailedAttempt) -> bytes:
    """The row of a failed rollout as one line of JSON, with whatever came before the failure; of
    what cannot be written there is nothing in it.
    """
    failure = failed.failure
    parts = RolloutParts.of(failed.partial)
    usage = from_status(failure.status).usage
    ended = parts.completed or parts.failed
    duration_us = 0 if ended is None else ended.duration_us
    row_failure = RowFailure(
        boundary=BOUNDARIES[failure.boundary],
        status=row_status(failure.status),
        retry_safe=failure.retry_safe,
        component=failure.component,
        call_id=failure.call_id,
    )
    try:
        return _line(task, read(parts), None, duration_us, usage, row_failure)
    except ValueError:  # CodecError is one: what the agent sent is not JSON
        bare = RolloutParts(
            parts.rollout_id, parts.attempt, parts.run_id, parts.task_id, parts.repeat_index
        )
        # Nor need the task be JSON, which the API may give.
        known = pb.Task(task_id=task.task_id, environment=task.environment, agent=task.agent)
        return _line(known, read(bare), None, duration_us, usage, row_failure)


def verification_row(verification: pb.Verification) -> dict[str, Any]:
    """A verdict as rows hold it under `verification`, parsed."""
    row: dict[str, Any] = loads(encode(Verification.of(verification)))
    return row


def row_status(status: status_pb2.Status) -> RowStatus:
    """A status: code, message, and the reason and metadata of its ErrorInfo."""
    info = error_details_pb2.ErrorInfo()
    for detail in status.details:
        with suppress(DecodeError):  # of a detail that is none
            if detail.Unpack(info):
                break
    return RowStatus(
        code=status.code,
        message=status.message,
        reason=info.reason,
        metadata=dict(sorted(info.metadata.items())),
    )


def status_dict(status: status_pb2.Status) -> dict[str, JsonValue]:
    """`row_status`, parsed."""
    row: dict[str, JsonValue] = loads(encode(row_status(status)))
    return row


_NOT_STARTED: Final = pb.Started()


def _line(
    task: pb.Task,
    reading: RolloutReading,
    verified: pb.Verified | None,
    duration_us: int,
    usage: Sequence[pb.ModelCallUsage],
    failure: RowFailure | UnsetType = UNSET,
) -> bytes:
    """A row. usage: of the environment's model calls for what failed."""
    parts = reading.parts
    started = parts.started or _NOT_STARTED
    names = names_of(parts.media)
    params, echoed = request_of(task, parts.started, names)
    extras = extras_of(task)
    calls = RowCalls(reading)
    reward = None if verified is None else parts.reward
    metadata = _metadata(reading, duration_us, reward is not None)
    evidence = b"" if verified is None else verified.verification.evidence_json
    line = row_line(
        verified,
        None if verified is None else parts.completed,
        parts,
        task,
        responses_create_params=params,
        first_items=first_items(task, parts.started, names),
        response=rollout_response(reading, calls.output(), echoed),
        reward=reward,
        environment=started.environment or task.environment,
        agent=started.agent or task.agent,
        metadata=overlaid(metadata, extras.metadata),
        model_usage=_model_usage(reading, usage),
        actors=actors_of(reading, verified),
        calls=calls.calls(),
        tool_calls=(ToolCall.of(record.answer()) for record in parts.tools),
        turns=(Turn.of(turn) for turn in parts.turns),
        failure=failure,
        program_name=started.program.name,
        program_version=started.program.version,
        task_extras=extras.kept,
        overlay=_overlay(extras, evidence),
    )
    if len(parts.calls) > _MANY:
        calls.release()
        reading.release()
    return line


def _metadata(reading: RolloutReading, duration_us: int, judged: bool) -> RowMetadata:
    started, verified = reading.parts.started, reading.parts.verified
    outcomes = reading.tool_outcomes
    seeded = started is not None and started.HasField("seed")
    return RowMetadata(
        steps_taken=reading.steps,
        tools_used=list(dict.fromkeys([name for name, _ in outcomes])) if outcomes else [],
        tool_outcomes=[
            ToolOutcomeCount(name=name, outcome=outcome, calls=calls)
            for (name, outcome), calls in outcomes.items()
        ],
        verified=judged,
        seed=started.seed if seeded and started is not None else UNSET,
        weights_versions=sorted(reading.weights),
        timings=RowTimings(
            started_at=reading.parts.started_unix_nano / 1e9,
            duration_us=duration_us,
            model_us=reading.model_us,
            tools_us=reading.tools_us,
            verify_us=0 if verified is None else verified.timings.total_us,
        ),
    )


def _overlay(extras: TaskExtras, evidence_json: bytes) -> bytes:
    """The task's keys, then those of the evidence whose names are free."""
    if not evidence_json:
        return extras.overlay
    evidence: Any = loads(evidence_json)
    if type(evidence) is not dict:
        return extras.overlay
    taken = extras.names
    free = {k: v for k, v in evidence.items() if k not in COLUMNS and k not in taken}
    if not free:
        return extras.overlay
    added = dumps_clean(free)
    return with_overlay(extras.overlay, added) if extras.overlay else added


def _model_usage(
    reading: RolloutReading, others: Sequence[pb.ModelCallUsage]
) -> list[ModelCallUsage]:
    """What the environment's own model calls consumed, by model: its turns', its verdict's, and
    `others`.
    """
    turns, judging = reading.parts.turns, reading.parts.verification.model_usage
    if not (turns or judging or others):
        return []
    sums: dict[str, ModelCallUsage] = {}
    for of_one in (*[turn.model_usage for turn in turns], judging, others):
        for entry in of_one:
            known = sums.get(entry.model)
            if known is None:
                sums[entry.model] = ModelCallUsage.of(entry)
                continue
            known.calls += entry.calls
            known.input_tokens += entry.input_tokens
            known.output_tokens += entry.output_tokens
    for known in sums.values():
        known.calls = as_uint32(known.calls)
        known.input_tokens = as_int64(known.input_tokens)
        known.output_tokens = as_int64(known.output_tokens)
    return list(sums.values())
