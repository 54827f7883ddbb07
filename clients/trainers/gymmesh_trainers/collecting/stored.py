"""Rollouts of an earlier session, read from the rows of its files: for a step that is resumed.

A row holds what a trainer reads (tokens, reward, parts of it, how it ended), not every event. The
calls of each actor come one after another, and all are trained where any is; of several versions of
the weights the oldest counts.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import UserError
from gymmesh_data import actors_of, stored_rollout
from gymmesh_responses import dumps_sorted, item_from_json, loads, params_to_dict
from gymmesh_rows import COLUMNS
from gymmesh_runtime.errors import MeshError, to_status

Json = dict[str, Any]
_OTHERS: Final = ("user", "system", "developer")
# More tokens than any call before has: of a prompt that could not be put together.
_UNKNOWN: Final = 2**31 - 1


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

    def completed(self, row: Any) -> None:
        """Take a completed row."""
        self._add(completed_of_row(row, f"rollout {row.get('rollout_id')}"), row)

    def failed(self, row: Any) -> None:
        """Take a failed row."""
        self._add(failed_of_row(row), row)

    def _add(self, rollout: pb.Rollout, row: Json) -> None:
        said = {key: value for key, value in row.items() if key not in COLUMNS}
        said |= row.get("task_extras") or {}
        said["input"] = (row.get("responses_create_params") or {}).get("input")
        self.versions.update((row.get("metadata") or {}).get("weights_versions") or ())
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
                        f"task {task.task_id}: the files of this step have rollouts of a task of "
                        f"this id with another {other[0]!r}; resume with the same tasks, in the "
                        "same steps, or choose another output"
                    )
            if len(self._rollouts.get(task.task_id, ())) >= self._repeats:
                self.whole.append((task, self.take(task.task_id)))
            yield task

    def take(self, task_id: str) -> list[pb.Rollout]:
        """The rollouts of a task that an earlier session ended; none stay."""
        return self._rollouts.pop(task_id, [])


def _asked(task: pb.Task) -> Json:
    """A task's keys as its rows have them, but for `metadata`, with which theirs is merged."""
    asked: Json = loads(task.payload_json) if task.payload_json else {}
    asked.pop("metadata", None)
    return asked | {"input": params_to_dict(task.params).get("input")}


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
    _put_calls(rollout, read.output, oldest, pb.ModelCallCompleted(trainable=True))
    for actor in actors_of(read):
        for spoken in actor.conversations:
            like = pb.ModelCallCompleted(actor=actor.name, trainable=actor.trainable)
            _put_calls(rollout, spoken.output, oldest, like)
    return rollout


def failed_of_row(row: Mapping[str, Any]) -> pb.Rollout:
    """A failed rollout."""
    rollout = _opening(row)
    said = row.get("failure") or {}
    name = f"BOUNDARY_{said.get('boundary')}"
    failure = rollout.failed.failure
    if name in pb.Boundary.DESCRIPTOR.values_by_name:
        failure.boundary = pb.Boundary.Value(name)
    failure.retry_safe = said.get("retry_safe") is True
    failure.component = str(said.get("component") or "")
    failure.call_id = str(said.get("call_id") or "")
    status = said.get("status") or {}
    reason = f"ERROR_REASON_{status.get('reason')}"
    known = reason in errors_pb2.ErrorReason.DESCRIPTOR.values_by_name
    value = errors_pb2.ErrorReason.Value(reason if known else "ERROR_REASON_INTERNAL")
    metadata = {str(key): str(one) for key, one in (status.get("metadata") or {}).items()}
    error = MeshError(value, str(status.get("message") or ""), metadata=metadata)
    failure.status.CopyFrom(to_status(error))
    return rollout


def _opening(row: Mapping[str, Any]) -> pb.Rollout:
    return pb.Rollout(
        run_id=str(row.get("run_id") or ""),
        task_id=str(row.get("task_id") or ""),
        repeat_index=int(row.get("repeat_index") or 0),
        rollout_id=str(row.get("rollout_id") or ""),
        attempt=int(row.get("attempt") or 1),
    )


def _put_calls(
    rollout: pb.Rollout, output: Sequence[Json], oldest: int | None, like: pb.ModelCallCompleted
) -> None:
    """The model calls and the tool calls that the items after the first ones of a conversation tell
    of. like: what all of these model calls have.
    """
    items: list[Json] = []
    names: dict[Any, str] = {}
    for item in [*output, None]:
        theirs = item is None or "output" in item or item.get("role") in _OTHERS
        if items and theirs:
            like = _put_call(rollout, items, oldest, like)
            items = []
        if item is None or theirs:
            if item is not None and item.get("type") == "function_call_output":
                record = rollout.tool_calls.add().completed
                record.call_id = str(item.get("call_id") or "")
                record.name = names.get(item.get("call_id"), "")
                record.output.CopyFrom(item_from_json(item))
            continue
        items.append(item)
        if item.get("type") == "function_call":
            names[item.get("call_id")] = str(item.get("name") or "")
        if "generation_token_ids" in item:
            like = _put_call(rollout, items, oldest, like)
            items = []


def _put_call(
    rollout: pb.Rollout, items: Sequence[Json], version: int | None, before: pb.ModelCallCompleted
) -> pb.ModelCallCompleted:
    """The call that goes on from `before`, which has no id where it is the first."""
    last = items[-1]
    call = rollout.model_calls.add(
        call_id=f"call-{len(rollout.model_calls)}",
        parent_call_id=before.call_id,
        actor=before.actor,
        trainable=before.trainable,
    )
    call.response.output.extend(map(item_from_json, items))
    if "generation_token_ids" in last:
        call.tokens.prompt_token_ids = array("i", last.get("prompt_token_ids") or []).tobytes()
        if "prompt_token_ids" not in last:
            call.tokens.prompt_prefix_tokens = _UNKNOWN
        call.tokens.output_token_ids = array("i", last["generation_token_ids"]).tobytes()
        logprobs = last.get("generation_log_probs") or []
        if None not in logprobs:  # which stands for one that is not finite
            call.tokens.logprobs = array("f", logprobs).tobytes()
        if version is not None:
            call.tokens.weights.append(tokens_pb2.WeightsSpan(version=version, first_token=0))
    return call
