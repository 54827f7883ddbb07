"""The tasks of a file, by their ids: exactly what verifiers received when a run was collected."""

from __future__ import annotations

import hashlib
from pathlib import Path

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import OutputFiles, TaskDefaults, TaskFile, TaskProblem, TaskReader, UserError
from gymmesh_client.run_file import TaskLines, read_run_file


class TaskSource:
    """Looks up tasks by their ids; needs about 100 bytes of memory for each task. Raises UserError
    if the file cannot be read.
    """

    def __init__(self, path: Path, reader: TaskReader) -> None:
        self.path = path
        wrong = [one.line for one in reader.read(path) if isinstance(one, TaskProblem)]
        self._tasks = TaskFile(reader, path, without=frozenset(wrong))
        self._places = {_key(task.task_id): at for at, task in enumerate(self._tasks)}

    def get(self, task_id: str) -> pb.Task | None:
        """The task with this id, or None."""
        place = self._places.get(_key(task_id))
        return None if place is None else self._tasks[place]


def tasks_of_run(path: Path) -> TaskSource | None:
    """The task file that a run was collected from, by its NAME.run.json; None if the file is
    missing, has changed since the run, or is not named.
    """
    about = read_run_file(OutputFiles(path).run)
    said = about.get("tasks")
    if not isinstance(said, dict) or not isinstance(said.get("path"), str):
        return None
    file = Path(said["path"])
    try:
        if TaskLines.of(file).sha256 != said.get("sha256"):
            return None
    except (UserError, ValueError):
        return None
    defaults = TaskDefaults(str(said.get("environment") or "any"), str(said.get("agent") or "any"))
    numbered = said.get("number_repeated_ids") is True
    return TaskSource(file, TaskReader(defaults, number_repeated_ids=numbered))


def _key(task_id: str) -> bytes:
    return hashlib.blake2b(task_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
