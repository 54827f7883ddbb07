"""The example tasks that an environment ships, as the contract's tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_responses import CodecError, dumps, loads, params_from_json

from ..environment import Environment
from ..errors import DefinitionError

_LOGGER = logging.getLogger("gymmesh.resource")
_OWN_KEYS = frozenset(
    {"task_id", "environment", "agent", "seed", "tags", "responses_create_params"}
)


def example_tasks(environment: Environment[Any], name: str) -> list[rollout_pb2.Task]:
    """The tasks, each with an id (`<name>-example-<n>` unless it has one) and this environment.

    Raises `DefinitionError`, which names the row.
    """
    tasks: list[rollout_pb2.Task] = []
    for number, row in enumerate(_rows(environment), start=1):
        try:
            tasks.append(_task(row, name, f"{name}-example-{number}"))
        except (CodecError, TypeError, ValueError) as error:
            raise DefinitionError(
                f"Example task {number} of {name!r} is broken: {error}."
            ) from None
    return tasks


def _rows(environment: Environment[Any]) -> Iterator[Any]:
    yield from environment.tasks()
    file = environment.examples_file()
    if file is None:
        return
    if not file.exists():
        # A package may leave them out: they are only there to try it with.
        _LOGGER.warning("there are no example tasks: %s is missing", file.name)
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
    if not isinstance(row, Mapping):
        raise TypeError("it is no JSON object")
    if "responses_create_params" not in row:
        raise ValueError("it has no responses_create_params")
    payload = {key: value for key, value in row.items() if key not in _OWN_KEYS}
    return rollout_pb2.Task(
        task_id=row.get("task_id", task_id),
        environment=environment,
        agent=row.get("agent", ""),
        params=params_from_json(row["responses_create_params"]),
        payload_json=dumps(payload) if payload else b"",
        seed=row.get("seed"),
        tags=row.get("tags", {}),
    )
