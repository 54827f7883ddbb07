"""Rollouts of an earlier session, read from the rows of its files: for a step that is resumed.

A row holds what a trainer reads (calls with their tokens, reward, parts of it, how it ended), not
every event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import OutputFiles, UserError
from gymmesh_client.log_records import ROWS
from gymmesh_client.rollout import completed_of_row, failed_of_row
from gymmesh_client.row_files import stored_rows
from gymmesh_responses import dumps, dumps_sorted, loads, params_to_dict
from gymmesh_rows import ModelCall, Row, RowError, parsed, read_row
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
                        f"the same id, but a different {other[0]!r}. Resume with the same tasks "
                        "in the same steps, or choose another output"
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
