"""A rollout as its row keeps it: what a trainer reads, not every event. Pure."""

from __future__ import annotations

from array import array
from base64 import b64decode

from msgspec import UNSET

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_responses import item_from_json, usage_from_json
from gymmesh_rows import ModelCall, RewardSpan, Row, TokenCapture, ToolCall
from gymmesh_runtime.errors import MeshError, reason_of, to_status


def completed_of_row(row: Row) -> pb.Rollout:
    """A completed rollout."""
    rollout = _opening(row)
    verdict = rollout.verified.verification
    verdict.status = pb.VERIFICATION_STATUS_SKIPPED
    if row.verification is not UNSET:
        status = f"VERIFICATION_STATUS_{row.verification.status}"
        if status in pb.VerificationStatus.DESCRIPTOR.values_by_name:
            verdict.status = pb.VerificationStatus.Value(status)
        for one in row.verification.components:
            verdict.components.add(name=one.name, value=one.value)
        for span in row.verification.spans:
            _put_span(verdict.spans.add(), span)
    if row.reward is not None:
        verdict.reward = row.reward
    stopped = f"STOP_REASON_{row.stop_reason}"
    if stopped in pb.StopReason.DESCRIPTOR.values_by_name:
        rollout.completed.stop_reason = pb.StopReason.Value(stopped)
    else:
        rollout.completed.SetInParent()
    tools = {(one.model_call_id, one.call_id): one for one in row.tool_calls}
    for call in row.calls:
        _put_call(rollout, row, call)
        _put_tools(rollout, row, call, tools)
    for turn in row.turns:
        put = rollout.turns.add(turn=turn.turn, model_call_id=turn.model_call_id, done=turn.done)
        if turn.reward is not UNSET:
            put.reward = turn.reward
    return rollout


def failed_of_row(row: Row) -> pb.Rollout:
    """A failed rollout."""
    rollout = _opening(row)
    failure = rollout.failed.failure
    said = row.failure
    if said is UNSET:
        failure.status.CopyFrom(to_status(MeshError(errors_pb2.ERROR_REASON_INTERNAL_FAULT, "")))
        return rollout
    name = f"BOUNDARY_{said.boundary}"
    if name in pb.Boundary.DESCRIPTOR.values_by_name:
        failure.boundary = pb.Boundary.Value(name)
    failure.retry_safe = said.retry_safe
    failure.component = said.component
    failure.call_id = said.call_id
    reason = reason_of(said.status.reason) or errors_pb2.ERROR_REASON_INTERNAL_FAULT
    error = MeshError(reason, said.status.message, metadata=said.status.metadata)
    failure.status.CopyFrom(to_status(error))
    return rollout


def _opening(row: Row) -> pb.Rollout:
    return pb.Rollout(
        run_id=row.run_id,
        task_id=row.task_id,
        repeat_index=row.repeat_index,
        rollout_id=row.rollout_id,
        attempt=row.attempt,
    )


def _put_call(rollout: pb.Rollout, row: Row, call: ModelCall) -> None:
    put = rollout.model_calls.add(
        call_id=call.call_id,
        parent_call_id=call.parent_call_id,
        detached=call.detached,
        actor=call.actor,
        model=call.model,
        trainable=call.trainable,
        side_call=call.side_call,
    )
    link = f"CALL_LINK_{call.link}"
    if link in pb.CallLink.DESCRIPTOR.values_by_name:
        put.link = pb.CallLink.Value(link)
    put.response.output.extend(item_from_json(item) for item in row.items(row.answer(call)))
    if call.id is not UNSET:
        put.response.id = call.id
    if call.status is not UNSET:
        put.response.status = call.status
    if call.usage is not UNSET:
        put.response.usage.CopyFrom(usage_from_json(bytes(call.usage)))
    if call.tokens is not UNSET:
        _put_tokens(put.tokens, call.tokens)


def _put_tokens(put: tokens_pb2.TokenCapture, tokens: TokenCapture) -> None:
    put.prompt_token_ids = array("i", tokens.prompt_token_ids).tobytes()
    put.prompt_prefix_tokens = tokens.prompt_prefix_tokens
    put.output_token_ids = array("i", tokens.output_token_ids).tobytes()
    known = [one for one in tokens.logprobs if one is not None]
    if len(known) == len(tokens.logprobs):  # null stands for one that is not finite
        put.logprobs = array("f", known).tobytes()
    for span in tokens.weights:
        put.weights.add(version=span.version, first_token=span.first_token, adapter=span.adapter)
    for held in tokens.constrained:
        why = f"CONSTRAINT_{held.constraint}"
        known_why = why in tokens_pb2.Constraint.DESCRIPTOR.values_by_name
        put.constrained.add(
            first_token=held.first_token,
            tokens=held.tokens,
            constraint=tokens_pb2.Constraint.Value(why) if known_why else None,
        )
    for side in tokens.side_data:
        put.side_data.add(
            name=side.name,
            dtype=side.dtype,
            shape=side.shape,
            first_token=side.first_token,
            tokens=side.tokens,
            data=b64decode(side.data),
            location=side.location,
            digest=bytes.fromhex(side.digest),
        )
    of = f"LOGPROB_DISTRIBUTION_{tokens.logprob_distribution}"
    if of in tokens_pb2.LogprobDistribution.DESCRIPTOR.values_by_name:
        put.logprob_distribution = tokens_pb2.LogprobDistribution.Value(of)
    if tokens.fork is not UNSET:
        put.fork.common_tokens = tokens.fork.common_tokens
        reason = f"FORK_REASON_{tokens.fork.reason}"
        if reason in tokens_pb2.ForkReason.DESCRIPTOR.values_by_name:
            put.fork.reason = tokens_pb2.ForkReason.Value(reason)


def _put_span(put: pb.RewardSpan, span: RewardSpan) -> None:
    put.name, put.value, put.actor = span.name, span.value, span.actor
    put.first_call_id, put.last_call_id = span.first_call_id, span.last_call_id
    if span.first_token is not UNSET:
        put.first_token = span.first_token
    if span.end_token is not UNSET:
        put.end_token = span.end_token


def _put_tools(
    rollout: pb.Rollout, row: Row, call: ModelCall, tools: dict[tuple[str, str], ToolCall]
) -> None:
    """What the tools answered that a call called."""
    asked = row.items(row.answer(call))
    names = {one.get("call_id"): one.get("name") for one in asked if "name" in one}
    replies = row.items(row.replies(call))
    for item in replies:
        if item.get("type") != "function_call_output":
            continue
        name = str(item.get("call_id") or "")
        record = rollout.tool_calls.add().completed
        record.call_id, record.name = name, str(names.get(name) or "")
        record.model_call_id, record.actor = call.call_id, call.actor
        record.output.CopyFrom(item_from_json(item))
        tool = tools.get((call.call_id, name))
        if tool is None:
            continue
        outcome = f"TOOL_OUTCOME_{tool.outcome}"
        if outcome in pb.ToolOutcome.DESCRIPTOR.values_by_name:
            record.outcome = pb.ToolOutcome.Value(outcome)
        if tool.reward is not UNSET:
            record.reward = tool.reward
