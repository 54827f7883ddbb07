"""Reads the groups that earlier sessions of a run began and that no trainer has acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msgspec import UNSET

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.groups import GroupLog, GroupStore, SharesState
from gymmesh_client.index import RunReader, open_run
from gymmesh_client.output import RunOutput
from gymmesh_client.problems import UserError
from gymmesh_client.rollout import completed_of_row, failed_of_row
from gymmesh_rows import RowError, read_row


@dataclass(frozen=True, slots=True)
class KeptGroup:
    """A group that an earlier session began and that no trainer acknowledged.

    Attributes:
        rollouts: the group's finished rollouts, read from their rows.
        missing: how many of the group's repeats have no outcome.
    """

    task: pb.Task
    rollouts: list[pb.Rollout]
    missing: int


@dataclass(frozen=True, slots=True)
class KeptGroups:
    """The notes of a run that hands out groups, and the groups that a resumed run hands out again.

    Attributes:
        log: the file of notes; the caller closes it.
        state: the state after the notes of earlier sessions.
        groups: the groups that earlier sessions began and that no trainer acknowledged.
        unsent: without notes of the earlier sessions: how many tasks already have an outcome. Their
            groups are not handed out.
    """

    log: GroupLog
    state: SharesState
    groups: list[KeptGroup]
    unsent: int = 0

    @staticmethod
    def opened(output: RunOutput, tasks: Iterable[pb.Task], repeats: int) -> KeptGroups:
        """Open the notes beside a run's output, for a new or a resumed run.

        Reads the kept groups into memory. These are at most the unacknowledged groups of the
        earlier session and the groups that it had in progress. Without a file of notes, groups
        that already have an outcome are not handed out.

        Args:
            tasks: all tasks of the run.

        Raises UserError if a file can't be read, OutputError if the notes can't be written.
        """
        path = output.files.groups
        if path.exists():
            log, state = GroupLog.resume(path, output.run_id)
            begun = (task for task in tasks if task.task_id not in state.done)
            groups = list(_kept(output, begun, repeats)) if output.outcomes else []
            return KeptGroups(log, state, groups)
        tasks = tasks if output.outcomes else ()
        done = [task.task_id for task in tasks if _ended(output, task, repeats)]
        log = GroupLog.create(path, output.run_id, done)
        return KeptGroups(log, SharesState(), [], len(done))

    def put_into(self, store: GroupStore) -> None:
        """Add the kept groups to a store, and exclude groups that trainers have acknowledged."""
        store.leave_out(self.state.done)
        for group in self.groups:
            store.restore(group.task, group.rollouts, group.missing)


def _ended(output: RunOutput, task: pb.Task, repeats: int) -> list[int]:
    """The repeats of a task that have an outcome."""
    return [one for one in range(repeats) if output.has_outcome(task.task_id, one)]


def _kept(output: RunOutput, tasks: Iterable[pb.Task], repeats: int) -> Iterator[KeptGroup]:
    with open_run(output.files.rows) as reader:
        for task in tasks:
            ended = _ended(output, task, repeats)
            if ended:
                rollouts = [_stored(reader, task.task_id, one) for one in ended]
                yield KeptGroup(task, rollouts, repeats - len(ended))


def _stored(reader: RunReader, task_id: str, repeat: int) -> pb.Rollout:
    name = reader.rollout_id(task_id, repeat)
    line = reader.line(name)
    if line is None:
        raise UserError(
            f"{reader.files.index} has no entry for rollout {name}. Delete this file, and resume "
            "again: gymmesh rebuilds the index"
        )
    try:
        row = read_row(line)
    except RowError as error:
        raise UserError(f"the row of rollout {name} is invalid: {error}") from None
    return completed_of_row(row) if row.failure is UNSET else failed_of_row(row)
