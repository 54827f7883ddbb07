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

if TYPE_CHECKING:
    from gymmesh.rollout.v1 import rollout_pb2
    from gymmesh_client import TaskReader


@click.command()
@place_argument
@mesh_options
@agent_option
@security_options
@click.option("--prompt", metavar="TEXT", help="The task: a question of your own.")
@click.option(
    "--with",
    "extras",
    multiple=True,
    metavar="KEY=VALUE",
    help="With --prompt: a further key of the task, such as what the verifier compares with; "
    "the value is JSON or else text. Repeatable.",
)
@click.option("--task", "place", metavar="FILE:LINE", help="The task: a line of a task file.")
@click.option(
    "--input", "-i", "tasks", type=FILE, help="The task: one of a task file, chosen by --index."
)
@click.option(
    "--index",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Which task of --input, or of the environment's examples, from 0.",
)
@click.option("--deltas", is_flag=True, help="Show answers while they are generated.")
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
    """Run one task and print its events as they happen: by default an example of the environment.

    \b
      gym-cli run --prompt "What is 17 * 23?" --with expected_answer=391
      gym-cli run desk.py
      gym-cli run --task tasks.jsonl:3
      gym-cli run --input tasks.jsonl --index 2 --json

    Exit code 0 when the rollout completed, 1 when it failed.
    """
    given = sum(one is not None for one in (prompt, place, tasks))
    if given > 1 or not (given or mesh.environment_place or mesh.config):
        raise click.UsageError(
            "give the task by exactly one of --prompt, --task and --input, or an environment with "
            "examples of its own, such as desk.py"
        )
    if extras and prompt is None:
        raise click.UsageError("--with adds keys to the task of --prompt; give that, too")
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
