"""Chooses the rows of a task file that a run uses, and reports the problems of the other rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymmesh.rollout.v1.rollout_pb2 import Task
from gymmesh_cli.terminal import one_line
from gymmesh_client import TaskProblem, TaskReader, TaskRow, UserError

if TYPE_CHECKING:
    from gymmesh_mesh.authoring.task_checks import TaskChecks

_SHOWN: Final = 5


@dataclass(slots=True)
class OtherAgents:
    """Rows whose `agent_ref` names a different agent than the one that runs them: their number, and
    the first row.
    """

    first: TaskRow
    count: int = 1

    def said(self, path: Path) -> str:
        """One sentence about them."""
        row, others = self.first, self.count - 1
        more = "" if not others else f" (and {others} more row{'s' * (others > 1)})"
        return (
            f"{path}:{row.line}{more}: agent_ref names agent {row.other_agent!r}, but agent "
            f"{row.task.agent!r} runs this row. To choose the agent, set the row's key "
            '"agent". To reject such rows, pass --refuse-other-agents'
        )


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """The tasks to run.

    Attributes:
        ids: the tasks' ids, in the order of the file.
        skipped: why rows are skipped; several mistakes of one row are several problems.
        seeded: how many of the tasks have a seed.
        environments: the names of the tasks' environments.
        agents: the names of the tasks' agents.
        other_agents: the tasks whose `agent_ref` names an agent other than the one that runs them.
    """

    ids: list[str]
    skipped: list[TaskProblem]
    seeded: int = 0
    environments: frozenset[str] = frozenset()
    agents: frozenset[str] = frozenset()
    other_agents: OtherAgents | None = None

    @property
    def lines_skipped(self) -> frozenset[int]:
        """The lines, from 1, that are left out."""
        return frozenset(problem.line for problem in self.skipped)

    def refuse_unknown(self, retried: Collection[str], path: Path) -> None:
        """Raise UserError for a task to be retried that is not among these tasks."""
        for task in sorted(set(retried).difference(self.ids)):
            raise UserError(f"--retry task={task}: no selected task of {path} has this id")


def checked_rows(
    reader: TaskReader, path: Path, checks: TaskChecks | None
) -> Iterator[TaskRow | TaskProblem]:
    """Each row's task, or each of its problems, what its environment has against it included.

    Raises:
        UserError: the file cannot be read.
        ConfigError: an environment cannot be created.
    """
    for entry in reader.read(path):
        problem = None
        if checks is not None and isinstance(entry, TaskRow):
            problem = checks.problem(entry.task)
        yield entry if problem is None else TaskProblem(entry.line, *problem)


def right_rows(reader: TaskReader, path: Path) -> Iterator[TaskRow]:
    """The valid rows of a file. Raises UserError at the first invalid row."""
    for entry in reader.read(path):
        if isinstance(entry, TaskProblem):
            raise UserError(one_line(entry.at(path)))
        yield entry


def right_tasks(reader: TaskReader, path: Path) -> Iterator[Task]:
    """The tasks of a file, as `right_rows` has them."""
    return (row.task for row in right_rows(reader, path))


def choose_tasks(
    reader: TaskReader,
    path: Path,
    limit: int | None,
    *,
    checks: TaskChecks | None,
    skip_invalid: bool,
    shown_as: str = "",
    validate: str | None = None,
) -> TaskChoice:
    """The first tasks of a file, once every row up to the limit is known to be right.

    Args:
        skip_invalid: skip invalid rows instead of raising.
        shown_as: the file's name in messages, if its path means nothing to the user.
        validate: the command that checks all rows; None: the one for the file's path. Empty: there
            is none.

    Raises:
        UserError: rows are invalid (the first few are named), or there are none.
        ConfigError: an environment cannot be created.
    """
    ids: list[str] = []
    environments: set[str] = set()
    agents: set[str] = set()
    problems: list[TaskProblem] = []
    other_agents: OtherAgents | None = None
    seeded = 0
    for entry in checked_rows(reader, path, checks):
        if isinstance(entry, TaskProblem):
            problems.append(entry)
            if len(problems) > _SHOWN and not skip_invalid:
                break
        else:
            ids.append(entry.task.task_id)
            environments.add(entry.task.environment)
            agents.add(entry.task.agent)
            seeded += entry.task.HasField("seed")
            if entry.other_agent and other_agents is None:
                other_agents = OtherAgents(entry)
            elif entry.other_agent and other_agents is not None:
                other_agents.count += 1
            if limit is not None and len(ids) >= limit:
                break
    if problems and not (skip_invalid and ids):
        shown = [one_line(problem.at(shown_as or path)) for problem in problems[:_SHOWN]]
        command = f"gym-cli data validate {path}" if validate is None else validate
        if len(problems) > 1 and command:
            shown.append(f"check all rows with: {command}")
        if not skip_invalid:
            shown.append("skip such rows with --skip-invalid")
        raise UserError("\n".join(shown))
    if not ids:
        raise UserError(f"{shown_as or path}: no tasks found")
    return TaskChoice(
        ids, problems, seeded, frozenset(environments), frozenset(agents), other_agents
    )


def refuse_pipe(tasks: Path) -> None:
    """Raise UserError for a file that can be read only once: the second reading would find no
    tasks.
    """
    if tasks.exists() and not tasks.is_file():
        raise UserError(
            f"{tasks} is not a regular file, but the command reads the tasks several times. Write "
            "the tasks to a file first"
        )
