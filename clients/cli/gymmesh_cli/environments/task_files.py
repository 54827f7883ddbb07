"""The tasks of a file, for commands that try one environment out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gymmesh.rollout.v1 import rollout_pb2


def tasks_of(file: Path) -> list[rollout_pb2.Task]:
    """The tasks of a file, all of one environment. Raises UserError."""
    from gymmesh_cli.shared.task_choice import right_tasks
    from gymmesh_client.problems import UserError
    from gymmesh_client.tasks import TaskDefaults, TaskReader

    tasks = list(right_tasks(TaskReader(TaskDefaults("trial", "trial")), file))
    if not tasks:
        raise UserError(f"{file}: no tasks found")
    return tasks
