"""The example tasks that an environment ships, as the contract's tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.environment import Environment
from gymmesh_resource.errors import DefinitionError, TaskInvalid
from gymmesh_resource.task import Task
from gymmesh_responses import CodecError, loads

_LOGGER = logging.getLogger("gymmesh.resource")


def example_tasks(environment: Environment[Any], name: str) -> list[rollout_pb2.Task]:
    """The tasks, each with an id (`<name>-example-<n>` unless it has one) and this environment.

    Raises `DefinitionError`, which names the row.
    """
    tasks: list[rollout_pb2.Task] = []
    for number, row in enumerate(example_rows(environment), start=1):
        try:
            tasks.append(_task(row, name, f"{name}-example-{number}"))
        except TaskInvalid as error:
            raise DefinitionError(
                f"Example task {number} of {name!r} is invalid: {error}."
            ) from None
    return tasks


def example_rows(environment: Environment[Any]) -> Iterator[Any]:
    """The example tasks, as their author wrote them. Raises `DefinitionError`."""
    yield from environment.tasks()
    file = environment.examples_file()
    if file is None:
        return
    if not file.exists():
        # A package may leave them out: they are only there to try it with.
        _LOGGER.warning("there are no example tasks: the file %s is missing", file.name)
        return
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"The example tasks {file} cannot be read: {error}.") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield loads(line)
            except CodecError as error:
                raise DefinitionError(f"{file}:{number} is not JSON: {error}.") from None


def _task(row: Any, environment: str, task_id: str) -> rollout_pb2.Task:
    message = rollout_pb2.Task()
    message.CopyFrom(Task.of(row).message)
    message.environment = environment
    if row.get("task_id") is None:
        message.task_id = task_id
    return message
