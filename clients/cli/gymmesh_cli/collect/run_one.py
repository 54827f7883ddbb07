"""What gym-cli run does: find the task, run it in a mesh, print its events."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import click

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_cli.shared.session import MeshPlan
from gymmesh_cli.shared.task_choice import refuse_pipe
from gymmesh_cli.terminal import DONE, NOTHING_DONE, echo_json_line, one_line
from gymmesh_cli.terminal.events import EventPrinter
from gymmesh_client import (
    FailedAttempt,
    TaskProblem,
    TaskReader,
    UserError,
    completed_row,
    failure_row,
    run_attempt,
)
from gymmesh_client.rollout_ids import rollout_id
from gymmesh_responses import CodecError, JsonValue, dumps, loads


async def run(
    plan: MeshPlan,
    find: Callable[[TaskReader], rollout_pb2.Task],
    *,
    deltas: bool,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Run the task that `find` chooses and print it; the exit code. Raises what `find` raises,
    MeshError and ConfigError.
    """
    if not plan.agents:
        # A wrong task is said before the models are loaded.
        find(plan.reader())
    printer = None if as_json else EventPrinter()
    async with plan.open() as mesh:
        task = find(plan.reader(mesh))
        request = agent_pb2.RunRolloutRequest(
            task=task,
            rollout_id=rollout_id("run", task.task_id, 0),
            attempt=1,
            run_id="run",
            options=agent_pb2.RolloutOptions(deltas=deltas),
        )
        outcome = await run_attempt(
            mesh.agents.connect,
            request,
            repeat_index=0,
            timeout_s=timeout_s,
            on_event=printer.show if printer else None,
        )
    if isinstance(outcome, FailedAttempt):
        if printer is None:
            echo_json_line(dumps(failure_row(task, outcome)))
        else:
            printer.failure(outcome)
        return NOTHING_DONE
    if printer is None:
        echo_json_line(dumps(completed_row(task, outcome)))
    return DONE


def split_place(place: str) -> tuple[Path, int]:
    """`tasks.jsonl:3` as a path and a line; raises UsageError."""
    path, colon, line = place.rpartition(":")
    if not colon or not path or not line.isdecimal() or int(line) < 1:
        raise click.UsageError(f"--task {place}: expected FILE:LINE, with LINE counted from 1")
    return Path(path), int(line)


def prompt_row(prompt: str, extras: tuple[str, ...]) -> dict[str, JsonValue]:
    """A task row of a question and `KEY=VALUE` extras; raises UsageError."""
    row: dict[str, JsonValue] = {"prompt": prompt}
    for extra in extras:
        key, equals, value = extra.partition("=")
        if not equals or not key or key in row:
            raise click.UsageError(
                f"--with {extra}: expected KEY=VALUE with a key that is not set yet"
            )
        try:
            row[key] = loads(value)
        except CodecError:
            row[key] = value
    return row


def prompt_task(reader: TaskReader, row: dict[str, JsonValue]) -> rollout_pb2.Task:
    """The task of a row that the command line made; raises UserError."""
    entry = reader.row(1, dumps(row))
    if isinstance(entry, TaskProblem):
        key = entry.key.removeprefix("prompt")
        raise UserError(f"--{f'with {key}' if key else 'prompt'}: {entry.sentence}")
    return entry.task


def task_at_line(reader: TaskReader, path: Path, line: int) -> rollout_pb2.Task:
    """The task on a line, from 1; raises UserError."""
    for entry in reader.read(path):
        if entry.line == line:
            if isinstance(entry, TaskProblem):
                raise UserError(one_line(entry.at(path)))
            return entry.task
    raise UserError(f"{path}:{line}: no task on this line")


def own_example(reader: TaskReader, plan: MeshPlan, index: int) -> rollout_pb2.Task:
    """The example of an index, from 0, of the default environment; raises UserError and
    ConfigError.
    """
    rows = plan.examples()
    if index >= len(rows):
        raise UserError(
            f"--index {index}: out of range; number of examples: {len(rows)} (indices start at 0)"
        )
    entry = reader.row(1, dumps(rows[index]))
    if isinstance(entry, TaskProblem):
        raise UserError(f"example {index}: {entry.key}: {entry.sentence}")
    return entry.task


def task_at_index(reader: TaskReader, path: Path, index: int) -> rollout_pb2.Task:
    """The task of an index, from 0; raises UserError."""
    refuse_pipe(path)
    entry = next(islice(reader.read(path), index, None), None)
    if entry is None:
        raise UserError(f"{path}: no task has index {index} (indices start at 0)")
    if isinstance(entry, TaskProblem):
        raise UserError(one_line(entry.at(path)))
    return entry.task
