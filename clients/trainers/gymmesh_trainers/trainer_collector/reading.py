"""How the tasks of a step or an evaluation are read."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from gymmesh_client import TaskDefaults, TaskProblem, TaskReader, UserError
from gymmesh_client.tasks import check_names
from gymmesh_trainers.trainer_collector.place import Policy
from gymmesh_trainers.trainer_collector.sources import DrawnTask
from gymmesh_trainers.trainer_collector.tasks import TaskLike, Tasks, as_message, messages_of

_BLOCK: Final = 256  # tasks of an asynchronous iterable that are read at a time
TaskBlock = Iterable[TaskLike | DrawnTask] | Path | str
"""Tasks that are collected in one run."""


def defaults_of(policy: Policy) -> TaskDefaults:
    """What the mesh takes for tasks that name no environment or agent."""
    defaults = policy.mesh.defaults
    return TaskDefaults(defaults.environment, defaults.agent)


def refuse_bad(tasks: TaskBlock, policy: Policy) -> None:
    """Raise UserError for a task that its environment would refuse, before any is run, and for a
    file without tasks; tasks of an iterator fail when their turn comes.
    """
    if isinstance(tasks, Path | str):
        _refuse_bad_rows(Path(tasks), policy)
        return
    if not isinstance(tasks, Sequence):
        return
    for place, task in enumerate(tasks):
        given = task.task if isinstance(task, DrawnTask) else task
        message = as_message(given, defaults_of(policy), place)
        unknown = check_names("environment", message.environment, "", policy.environments)
        problem = next(iter(unknown), None)
        if problem is None and policy.checks is not None:
            problem = policy.checks.problem(message)
        if problem is not None:
            raise UserError(f"tasks[{place}]: {': '.join(filter(None, problem))}")


def _refuse_bad_rows(path: Path, policy: Policy) -> None:
    """The same, of a file, with the line."""
    reader = TaskReader(defaults_of(policy), policy.environments, number_repeated_ids=True)
    empty = True
    for entry in reader.read(path):
        empty = False
        if isinstance(entry, TaskProblem):
            raise UserError(entry.at(path))
        problem = None if policy.checks is None else policy.checks.problem(entry.task)
        if problem is not None:
            raise UserError(TaskProblem(entry.line, *problem).at(path))
    if empty:
        raise UserError(f"{path}: no tasks found")


def drawn_of(tasks: TaskBlock, policy: Policy) -> Iterator[DrawnTask]:
    """The tasks of a run as it reads them. Raises UserError for one that can't be used."""
    own: deque[DrawnTask] = deque()

    def plain(given: Iterable[TaskLike | DrawnTask]) -> Iterator[TaskLike]:
        for task in given:
            if isinstance(task, DrawnTask):
                own.append(task)
                task = task.task
            yield task

    whole = tasks if isinstance(tasks, Path | str) else plain(tasks)
    for message in messages_of(whole, defaults_of(policy)):
        if own:
            drawn = own.popleft()
            yield DrawnTask(message, drawn.source, drawn.task.task_id)
        else:
            yield DrawnTask(message)


async def blocks(
    tasks: Tasks | Iterator[DrawnTask],
) -> AsyncGenerator[TaskBlock, None]:
    """The tasks whole, or an asynchronous iterable's in blocks."""
    if not isinstance(tasks, AsyncIterable):
        yield tasks
        return
    block: list[TaskLike] = []
    async for task in tasks:
        block.append(task)
        if len(block) == _BLOCK:
            yield block
            block = []
    if block:
        yield block
