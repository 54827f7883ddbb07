"""gym-cli show: its options. How a rollout becomes lines is in `show_lines`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gymmesh_cli.options import FILE, json_option

if TYPE_CHECKING:
    from gymmesh_data import StoredRollout


@click.command("show")
@click.argument("path", metavar="ROLLOUTS", type=FILE)
@click.option("--rollout", metavar="ID", help="Show the rollout with this id.")
@click.option("--task", metavar="ID", help="Show the rollouts of this task, one per repeat.")
@click.option(
    "--repeat",
    type=click.IntRange(min=0),
    help="With --task: only the repeat with this number, counted from 0.",
)
@click.option("--best", is_flag=True, help="Show the rollout with the highest reward.")
@click.option("--worst", is_flag=True, help="Show the rollout with the lowest reward.")
@click.option(
    "--tokens",
    is_flag=True,
    help="Also show the number of tokens that each model call read and sampled.",
)
@click.option(
    "--pager", is_flag=True, help="Show the output in the terminal's pager, such as less."
)
@json_option
def show(
    path: Path,
    rollout: str | None,
    task: str | None,
    repeat: int | None,
    best: bool,
    worst: bool,
    tokens: bool,
    pager: bool,
    as_json: bool,
) -> None:
    """Print a stored rollout as a conversation. The command prints messages, reasoning, tool calls
    and results, then the verdict with parts and evidence, and the duration of each stage.

    \b
      gym-cli show rollouts.jsonl
      gym-cli show rollouts.jsonl --worst
      gym-cli show rollouts.jsonl --task sum-1
      gym-cli show rollouts.jsonl --rollout ro-d7623eac7204a3184e2a-0 --json

    ROLLOUTS is the --output of `gym-cli collect` (the run can still be active), or another file
    with rows of rollouts. The command needs no trace. Default: the first rollout. With --json, the
    command prints one line per rollout. The line has the messages, as in `gym-cli export --format
    messages`, and the verdict.
    """
    from gymmesh_cli.stored.show_lines import ConversationView
    from gymmesh_cli.terminal import echo_json, echo_parts, page_parts
    from gymmesh_data import conversation_of

    if repeat is not None and task is None:
        raise click.UsageError("--repeat selects a repeat of a task; add --task")
    if sum((rollout is not None, task is not None, best, worst)) > 1:
        raise click.UsageError(
            "select rollouts with only one of --rollout, --task, --best and --worst"
        )
    view = ConversationView(tokens=tokens)
    chosen = _chosen(path, rollout, task, repeat, best=best, worst=worst)
    if as_json:
        for one in chosen:
            echo_json(view.document(one, conversation_of(one)))
        return
    lines = [line for one in chosen for line in view.lines(one, conversation_of(one))]
    if pager:
        page_parts(line.parts for line in lines)
    else:
        for line in lines:
            echo_parts(*line.parts)


def _chosen(
    path: Path,
    rollout: str | None,
    task: str | None,
    repeat: int | None,
    *,
    best: bool,
    worst: bool,
) -> list[StoredRollout]:
    """The rollouts to show. Raises UserError where there is none."""
    from gymmesh_client import UserError
    from gymmesh_data.showing import best_of, first_of, of_id, of_task, worst_of

    if rollout is not None:
        found, asked = of_id(path, rollout), f"rollout {rollout!r}"
    elif task is not None:
        found, asked = of_task(path, task, repeat), f"task {task!r}"
        asked += "" if repeat is None else f" repeat {repeat}"
    elif best or worst:
        found = best_of(path) if best else worst_of(path)
        asked = "rollout with a reward"
    else:
        found, asked = first_of(path), "rollout"
    if not found:
        raise UserError(f"{path}: there is no {asked}")
    return found
