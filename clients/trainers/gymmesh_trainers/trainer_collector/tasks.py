"""Tasks as trainers have them: rows, tasks, iterators of either, or a task file."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import TaskDefaults, TaskFile, TaskReader, UserError
from gymmesh_client.tasks import OWN_KEYS, check_row
from gymmesh_resource import Task, TaskInvalid
from gymmesh_responses import CodecError, loads

TaskLike = Task | Mapping[str, Any] | pb.Task
"""A task, a row of a task file, or the contract's message."""
Tasks = Iterable[TaskLike] | AsyncIterable[TaskLike] | Path | str
"""Tasks, or the path of a task file."""


def as_message(task: TaskLike, defaults: TaskDefaults, place: int) -> pb.Task:
    """The message of a task, with an environment and an agent.

    Args:
        place: from 0, for messages.

    Raises:
        UserError: it cannot be a task.
    """
    try:
        found = Task.of(task) if isinstance(task, Mapping) else task
    except TaskInvalid as problem:
        assert isinstance(task, Mapping)
        # Of these keys the check of a file's rows says more.
        known = (f"{key}: {said}" for key, said in check_row(dict(task)) if key in OWN_KEYS)
        raise UserError(f"tasks[{place}]: {next(known, problem)}") from None
    message = found.message if isinstance(found, Task) else found
    if not isinstance(message, pb.Task):
        raise UserError(
            f"tasks[{place}]: must be a row (an object), a Task or a task message, "
            f"not {type(message).__name__}"
        )
    whole = pb.Task()
    whole.CopyFrom(message)
    whole.environment = whole.environment or defaults.environment
    whole.agent = whole.agent or defaults.agent
    for key in ("environment", "agent"):
        if not getattr(whole, key):
            raise UserError(f"tasks[{place}]: {key}: is missing, and the mesh has no default")
    return whole


def task_written(written: Any, key: str) -> dict[str, Any]:
    """The row of a task that a trainer's row holds, as JSON text or an object. Raises UserError.

    key: where it was, for messages.
    """
    try:
        task = loads(written) if isinstance(written, str | bytes) else dict(written)
    except CodecError as error:
        raise UserError(f"{key}: {error}") from None
    if not isinstance(task, dict):
        raise UserError(f"{key}: must be a JSON object, a row of a task file")
    return task


def messages_of(
    tasks: Iterable[TaskLike] | Path | str, defaults: TaskDefaults
) -> Iterator[pb.Task]:
    """The messages of tasks, one at a time; a task that comes again gets `-2`, `-3` … behind its
    id. Raises UserError.
    """
    if isinstance(tasks, Path | str):
        yield from TaskFile(TaskReader(defaults, number_repeated_ids=True), Path(tasks))
        return
    taken = set[str]()
    copies: Counter[str] = Counter()
    for place, task in enumerate(tasks):
        message = as_message(task, defaults, place)
        name = message.task_id
        while message.task_id in taken:  # a task may be called like the copy of another one
            copies[name] += 1
            message.task_id = f"{name}-{copies[name] + 1}"
        taken.add(message.task_id)
        yield message
