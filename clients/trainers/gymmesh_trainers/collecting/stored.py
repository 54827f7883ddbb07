"""Rollouts of an earlier session, read from the rows of its files: for a step that is resumed.

A row holds what a trainer reads (tokens, reward, parts of it, how it ended), not every event.
Actors are not told apart in it, and of several versions of the weights the oldest counts.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_data import stored_rollout
from gymmesh_responses import item_from_json
from gymmesh_runtime.errors import MeshError, to_status

__all__ = ["completed_of_row", "failed_of_row"]


def completed_of_row(row: Mapping[str, Any], where: str) -> pb.Rollout:
    """A completed rollout. Raises UserError for a row that is none."""
    read = stored_rollout(dict(row), where)
    rollout = _opening(row)
    verdict = rollout.verified.verification
    said = row.get("verification") or {}
    status = str(said.get("status") or "SKIPPED")
    verdict.status = pb.VerificationStatus.Value(f"VERIFICATION_STATUS_{status}")
    if read.reward is not None:
        verdict.reward = read.reward
    for one in said.get("components") or ():
        verdict.components.add(name=one["name"], value=one["value"])
    rollout.completed.stop_reason = pb.StopReason.Value(f"STOP_REASON_{row['stop_reason']}")
    versions = read.metadata.get("weights_versions") or []
    oldest = min(versions) if versions else None
    items: list[Any] = []
    for place, item in enumerate(read.output):
        items.append(item)
        if "generation_token_ids" in item:
            rollout.model_calls.append(_call(f"call-{place}", items, rollout, oldest))
            items = []
    return rollout


def failed_of_row(row: Mapping[str, Any]) -> pb.Rollout:
    """A failed rollout."""
    rollout = _opening(row)
    said = row.get("failure") or {}
    name = f"BOUNDARY_{said.get('boundary')}"
    failure = rollout.failed.failure
    if name in pb.Boundary.DESCRIPTOR.values_by_name:
        failure.boundary = pb.Boundary.Value(name)
    reason = f"ERROR_REASON_{said.get('reason')}"
    known = reason in errors_pb2.ErrorReason.DESCRIPTOR.values_by_name
    value = errors_pb2.ErrorReason.Value(reason if known else "ERROR_REASON_INTERNAL")
    failure.status.CopyFrom(to_status(MeshError(value, str(said.get("message") or ""))))
    return rollout


def _opening(row: Mapping[str, Any]) -> pb.Rollout:
    return pb.Rollout(
        run_id=str(row.get("run_id") or ""),
        task_id=str(row.get("task_id") or ""),
        repeat_index=int(row.get("repeat_index") or 0),
        rollout_id=str(row.get("rollout_id") or ""),
        attempt=int(row.get("attempt") or 1),
    )


def _call(
    call_id: str, items: list[Any], rollout: pb.Rollout, version: int | None
) -> pb.ModelCallCompleted:
    last = items[-1]
    call = pb.ModelCallCompleted(call_id=call_id, trainable=True)
    if rollout.model_calls:
        call.parent_call_id = rollout.model_calls[-1].call_id
    call.response.output.extend(item_from_json(one) for one in items if "output" not in one)
    call.tokens.prompt_token_ids = array("i", last.get("prompt_token_ids") or []).tobytes()
    call.tokens.output_token_ids = array("i", last["generation_token_ids"]).tobytes()
    call.tokens.logprobs = array("f", last.get("generation_log_probs") or []).tobytes()
    if version is not None:
        call.tokens.weights.append(tokens_pb2.WeightsSpan(version=version, first_token=0))
    return call
