"""Imports the rows of `shapes`, with all that the installed environments have against them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_audit import Gold
from gymmesh_data.imports import KNOWN, Imports, import_file
from gymmesh_mesh.authoring.task_checks import TaskChecks
from gymmesh_resource import Task
from tests.unit.data.datasets.shapes import GOOD

Json = dict[str, Any]
CHECKS = TaskChecks.of_installed()
# Answers that follow the instructions of IFEval's rows, which have none of their own.
FOLLOWING = (
    "A text of the usual kind",
    "The mill by the river grinds wheat.",
    "It is a short one.",
    '"It is so, they say."',
    "this is written in small letters only.",
)


def written(folder: Path, rows: list[Json], name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def imported(folder: Path, source: Path, **options: Any) -> list[Json]:
    output = folder / "tasks.jsonl"
    import_file([source], output, KNOWN, Imports(problem=CHECKS.row_problem, **options))
    tasks = [json.loads(line) for line in output.read_text().splitlines()]
    output.unlink()
    return tasks


def tasks_of(folder: Path, name: str) -> list[rollout_pb2.Task]:
    rows = imported(folder, written(folder, GOOD[name]))
    return [Task.of({"task_id": f"{at}"} | row).message for at, row in enumerate(rows)]


def following(task: rollout_pb2.Task) -> list[Gold]:
    return [Gold(FOLLOWING[int(task.task_id.rpartition("/")[2]) - 1])]
