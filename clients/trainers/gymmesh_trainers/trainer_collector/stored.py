"""Rollouts of an earlier session, read from the rows of its files: for a step that is resumed.

A row holds what a trainer reads (calls with their tokens, reward, parts of it, how it ended), not
every event.
"""

from __future__ import annotations

from array import array
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import OutputFiles, UserError
from gymmesh_client.log_records import ROWS
from gymmesh_client.row_files import stored_rows
from gymmesh_responses import dumps, dumps_sorted, item_from_json, loads, params_to_dict
from gymmesh_rows import (
    ModelCall,
    RewardSpan,
    Row,
    RowError,
    TokenCapture,
    ToolCall,
    parsed,
    read_row,
)
from gymmesh_runtime.errors import MeshError, reason_of, to_status
from gymmesh_trainers.trainer_collector.weights import WeightsVersions

Json = dict[str, Any]


class KeptRollouts:
    """What a resumed step's files hold already, until its groups are whole.

    Args:
        repeats: rollouts of a task.

    Attributes:
        whole: tasks that have all their rollouts already.
        versions: of the weights that sampled them.
    """

    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        self._rollouts: dict[str, list[pb.Rollout]] = {}
        # By task, what rows say of it.
        self._said: dict[str, list[Json]] = {}
        self.whole: list[tuple[pb.Task, list[pb.Rollout]]] = []
        self.versions = set[int]()

    def completed(self, row: Mapping[str, Any]) -> None:
        """Add a completed row. Raises UserError if it is not one."""
        read = _read(row)
        self._add(completed_of_row(read), read)

    def failed(self, row: Mapping[str, Any]) -> None:
        """Add a failed row. Raises UserError if it is not one."""
        read = _read(row)
        self._add(failed_of_row(read), read)

    def _add(self, rollout: pb.Rollout, row: Row) -> None:
        said = dict(row.extras)
        if row.task_extras is not UNSET:
            extras: Any = parsed(row.task_extras)
            said |= extras
        said["input"] = row.params.get("input")
        self.versions.update(row.metadata.weights_versions)
        self._rollouts.setdefault(rollout.task_id, []).append(rollout)
        self._said.setdefault(rollout.task_id, []).append(said)

    def watch(self, tasks: Iterable[pb.Task]) -> Iterable[pb.Task]:
        """The tasks; groups that are whole already are put aside on the way.

        Raises UserError for a task of which the files have rollouts with another prompt or other
        keys: they would be in a group with those of this one.
        """
        for task in tasks:
            asked = _asked(task) if task.task_id in self._said else {}
            for said in self._said.pop(task.task_id, ()):
                other = [
                    key
                    for key, value in asked.items()
                    if dumps_sorted(said.get(key)) != dumps_sorted(value)
                ]
                if other:
                    raise UserError(
                        f"task {task.task_id}: the files of this step have rollouts of a task with "
                        f"this id but another {other[0]!r}. Resume with the same tasks in the same "
                        "steps, or choose another output"
                    )
            if len(self._rollouts.get(task.task_id, ())) >= self._repeats:
                self.whole.append((task, self.take(task.task_id)))
            yield task

    def take(self, task_id: str) -> list[pb.Rollout]:
        """The rollouts of a task that an earlier session ended; none stay."""
        return self._rollouts.pop(task_id, [])


def replaced_tasks(files: OutputFiles, weights: WeightsVersions) -> frozenset[str]:
    """The tasks whose stored groups are collected anew: weights of a rollout of theirs are too old,
    or newer than the trainer's. Raises UserError where the rows can't be read.
    """
    known: dict[str, set[int | None]] = {}
    for stored in stored_rows(files, ROWS):
        row = read_row(stored.line)
        versions = known.setdefault(row.task_id, set())
        versions.update(row.metadata.weights_versions)
        if any(map(_before_versions, row.calls)):
            versions.add(None)
    for version in {one for versions in known.values() for one in versions if one is not None}:
        if weights.announced is None or version <= weights.announced:
            weights.see(version)
    return frozenset(name for name, versions in known.items() if weights.replaces(versions))


def _before_versions(call: ModelCall) -> bool:
    """Whether the policy sampled a call before any version of its weights was announced."""
    tokens = call.tokens
    if tokens is UNSET or not call.trainable or not tokens.output_token_ids:
        return False
    return not tokens.weights or tokens.weights[0].first_token > 0


def _asked(task: pb.Task) -> Json:
    """A task's keys as its rows have them, but for `metadata`, with which theirs is merged."""
    asked: Json = loads(task.payload_json) if task.payload_json else {}
    asked.pop("metadata", None)
    return asked | {"input": params_to_dict(task.params).get("input")}


def _read(row: Mapping[str, Any]) -> Row:
    try:
        return read_row(dumps(dict(row)))
    except RowError as error:
        raise UserError(f"rollout {row.get('rollout_id')}: {error}") from None


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
    put.response.output.extend(item_from_json(item) for item in row.items(row.answer(call)))
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
        put.weights.add(version=span.version, first_token=span.first_token)
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
