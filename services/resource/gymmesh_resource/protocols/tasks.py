"""The tasks that clients of other protocols choose from: task files, or the environment's examples.

Invariant: a file is checked and indexed once, when it is opened. Only the place and the id of a row
are kept in memory; the row is read again for each request.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.errors import TaskInvalid
from gymmesh_resource.task import Task
from gymmesh_responses import CodecError, JsonValue, loads
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.text import os_reason

#: The split of the environment's own examples.
EXAMPLES: Final = "examples"


class _Split(Protocol):
    """The tasks of one split."""

    def __len__(self) -> int: ...

    def task(self, index: int) -> rollout_pb2.Task: ...

    def find(self, task_id: str) -> int | None: ...


class TaskTable:
    """The tasks of an environment, by split and index, or by id.

    `files`: a task file for each split, by name; none: `examples`. `check`: raises MeshError
    (TASK_INVALID) for a task that the environment refuses.

    Raises ConfigError for a file that cannot be read, for the first wrong row of a file, and where
    there is no task at all.
    """

    def __init__(
        self,
        environment: str,
        files: Mapping[str, str],
        examples: Sequence[rollout_pb2.Task],
        check: Callable[[Task], None],
    ) -> None:
        self._environment = environment
        place = f"environments.{environment}.protocols.tasks"
        self._splits: dict[str, _Split] = (
            {name: _TaskFile(Path(file), place, check) for name, file in files.items()}
            if files
            else {EXAMPLES: _Examples(examples)}
        )
        if not any(map(len, self._splits.values())):
            what = (
                "the task files have no tasks" if files else "the environment has no example tasks"
            )
            raise ConfigError(f"{what}. Name a file of tasks", path=place)

    @property
    def splits(self) -> list[str]:
        """The names of the splits; the first is used where a client names none."""
        return list(self._splits)

    def count(self, split: str) -> int:
        """How many tasks a split has. Raises FIELD_INVALID for an unknown split."""
        return len(self._split(split))

    def task(self, split: str, index: int) -> rollout_pb2.Task:
        """A task. Raises FIELD_INVALID for an unknown one, TASK_INVALID for a broken row."""
        found = self._split(split)
        if not 0 <= index < len(found):
            raise _unknown(
                "index",
                f"is {index}, but must be below the number of tasks in the split {split!r}, "
                f"{len(found)}",
            )
        return self._named(found.task(index))

    def find(self, task_id: str) -> rollout_pb2.Task | None:
        """The task of an id. Raises TASK_INVALID for a broken row."""
        for split in self._splits.values():
            if (index := split.find(task_id)) is not None:
                return self._named(split.task(index))
        return None

    def of_row(self, row: Mapping[str, JsonValue]) -> rollout_pb2.Task:
        """The task of a row that a client sent. Raises TASK_INVALID."""
        try:
            return self._named(Task.of(row).message)
        except TaskInvalid as error:
            raise _task_invalid(error, "") from None

    def _named(self, task: rollout_pb2.Task) -> rollout_pb2.Task:
        if task.environment == self._environment:
            return task
        own = rollout_pb2.Task()
        own.CopyFrom(task)
        own.environment = self._environment
        return own

    def _split(self, name: str) -> _Split:
        found = self._splits.get(name)
        if found is None:
            raise _unknown(
                "split",
                f"is {name!r:.100}, which is unknown. The splits are: {', '.join(self._splits)}",
            )
        return found


class _Examples:
    def __init__(self, tasks: Sequence[rollout_pb2.Task]) -> None:
        self._tasks = tasks
        self._places = {task.task_id: place for place, task in enumerate(tasks)}

    def __len__(self) -> int:
        return len(self._tasks)

    def task(self, index: int) -> rollout_pb2.Task:
        return self._tasks[index]

    def find(self, task_id: str) -> int | None:
        return self._places.get(task_id)


class _TaskFile:
    """A file of task rows (JSONL). It must not change while it is served."""

    def __init__(self, path: Path, place: str, check: Callable[[Task], None]) -> None:
        self._path = path
        self._starts = array("Q")
        self._lines = array("L")
        self._places: dict[str, int] = {}
        offset, number = 0, 0
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        self._add(loads(line), offset, number, check)
                    offset += len(line)
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {os_reason(error)}", path=place) from None
        except TaskInvalid as error:
            raise ConfigError(f"{path}:{number}: {error}", path=place) from None
        except (CodecError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}:{number}: is not JSON: {error}", path=place) from None

    def _add(self, row: JsonValue, offset: int, number: int, check: Callable[[Task], None]) -> None:
        """Keeps the place of a row. Raises TaskInvalid for a row that no session could open."""
        task = Task.of(row)  # which refuses anything but an object
        params = task.message.params
        if params.HasField("input_text") and not params.input_text.strip():
            raise TaskInvalid("prompt", "is empty; give a text, or a list of items")
        try:
            check(task)
        except MeshError as error:
            # Any other fault of a check is the environment's, and shows when a session opens.
            if error.reason == errors_pb2.ERROR_REASON_TASK_INVALID:
                raise TaskInvalid(error.metadata.get("field", ""), error.message) from None
        task_id = row.get("task_id") if isinstance(row, dict) else None
        if task_id is not None:
            self._places.setdefault(str(task_id), len(self._starts))
        self._starts.append(offset)
        self._lines.append(number)

    def __len__(self) -> int:
        return len(self._starts)

    def task(self, index: int) -> rollout_pb2.Task:
        where = f"{self._path.name}:{self._lines[index]}: "
        try:
            with self._path.open("rb") as file:
                file.seek(self._starts[index])
                row = loads(file.readline())
            return Task.of(row).message
        except TaskInvalid as error:
            raise _task_invalid(error, where) from None
        except (OSError, CodecError) as error:
            raise _task_invalid(TaskInvalid("", str(error)), where) from None

    def find(self, task_id: str) -> int | None:
        return self._places.get(task_id)


def _task_invalid(error: TaskInvalid, where: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_TASK_INVALID,
        f"{where}the task is invalid: {error}",
        metadata={"field": error.field},
    )


def _unknown(field: str, problem: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_FIELD_INVALID, f"{field} {problem}", metadata={"field": field}
    )
