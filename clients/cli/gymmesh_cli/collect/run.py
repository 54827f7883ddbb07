"""gym-cli run: its options. What it does is in `run_one`, imported when it runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gymmesh_cli.options import (
    FILE,
    MeshOptions,
    SecurityOptions,
    agent_option,
    json_option,
    mesh_options,
    place_argument,
    security_options,
    timeout_option,
)
from gymmesh_cli.terminal import GroupedCommand, OptionGroup, option

if TYPE_CHECKING:
    from gymmesh.rollout.v1 import rollout_pb2
    from gymmesh_client import TaskReader


@click.command(cls=GroupedCommand)
@place_argument
@mesh_options
@agent_option
@security_options
@option("--prompt", group=OptionGroup.TASKS, metavar="TEXT", help="Run this prompt as the task.")
@option(
    "--with",
    "extras",
    group=OptionGroup.TASKS,
    multiple=True,
    metavar="KEY=VALUE",
    help=(
        "With --prompt: set another key of the task, such as the expected answer for the "
        "verifier. VALUE can be JSON. If VALUE is not valid JSON, the key's value is the "
        "plain text. Repeatable."
    ),
)
@option(
    "--task",
    "place",
    group=OptionGroup.TASKS,
    metavar="FILE:LINE",
    help="Run the task on this line of a task file.",
)
@option(
    "--input",
    "-i",
    "tasks",
    group=OptionGroup.TASKS,
    type=FILE,
    help="Run one task of this task file. --index selects the task.",
)
@option(
    "--index",
    group=OptionGroup.TASKS,
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Index of the task in --input or in the environment's examples, counted from 0.",
)
@option(
    "--deltas",
    group=OptionGroup.MONITORING,
    is_flag=True,
    help="Print the model's answers while the model generates them.",
)
@timeout_option(900.0, "the rollout")
@json_option
def run(
    mesh: MeshOptions,
    agent: tuple[str, ...],
    security: SecurityOptions,
    prompt: str | None,
    extras: tuple[str, ...],
    place: str | None,
    tasks: Path | None,
    index: int,
    **how: Any,
) -> int:
    """Run one task and print the events of the rollout live. Without --prompt, --task or --input,
    the command runs an example task of ENVIRONMENT, or of the default environment of --config.

    ENVIRONMENT is a file, a class or function such as desk.py:Desk, the folder of a package, an
    environment of --config, or an installed environment.

    \b
      gym-cli run --prompt "What is 17 * 23?" --with expected_answer=391
      gym-cli run desk.py
      gym-cli run --task tasks.jsonl:3
      gym-cli run --input tasks.jsonl --index 2 --json

    Exit code 0: the rollout completed. 1: the rollout failed.
    """
    given = sum(one is not None for one in (prompt, place, tasks))
    if given > 1 or not (given or mesh.environment_place or mesh.config):
        raise click.UsageError(
            "choose the task with exactly one of --prompt, --task and --input, or name an "
            "environment with its own examples, such as desk.py"
        )
    if extras and prompt is None:
        raise click.UsageError("--with sets keys of the --prompt task; add --prompt")
    from gymmesh_cli.collect import run_one
    from gymmesh_cli.shared.session import MeshPlan
    from gymmesh_runtime.serving import run_bounded

    plan = MeshPlan.of(mesh, agent, security)
    find: Callable[[TaskReader], rollout_pb2.Task]
    if prompt is not None:
        find = partial(run_one.prompt_task, row=run_one.prompt_row(prompt, extras))
    elif place is not None:
        path, line = run_one.split_place(place)
        find = partial(run_one.task_at_line, path=path, line=line)
    elif tasks is not None:
        find = partial(run_one.task_at_index, path=tasks, index=index)
    else:
        find = partial(run_one.own_example, plan=plan, index=index)
    return run_bounded(run_one.run(plan, find, **how))
