"""gym-cli data sample: a random subset of a task file, by seed."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gymmesh_cli.options import FILE, json_option, number_ids_option
from gymmesh_cli.terminal import one_line, report

if TYPE_CHECKING:
    from gymmesh_client.tasks import TaskRow


@click.command(short_help="Write a random subset of a task file.")
@click.argument("tasks", type=FILE)
@click.option(
    "--number",
    "-n",
    required=True,
    type=click.IntRange(min=1),
    help=("Number of tasks in the subset."),
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the random choice. The same seed selects the same tasks.",
)
@click.option("--output", "-o", required=True, type=FILE, help="Write the subset to this file.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@number_ids_option
@json_option
def sample(
    tasks: Path,
    number: int,
    seed: int,
    output: Path,
    overwrite: bool,
    number_ids: bool,
    as_json: bool,
) -> None:
    """Write a random subset of a task file, in the order of the file.

    \b
      gym-cli data sample tasks.jsonl --number 200 --seed 1 --output small.jsonl

    The same seed selects the same tasks, even if the order of the rows changes. With the same seed,
    a smaller subset is part of a larger subset. The command copies rows unchanged. If a row has no
    id, the id is derived from the row's content, and is the same in the subset.
    """
    from gymmesh_client.safe_writes import refuse_inputs, refuse_used

    refuse_inputs([output], {"the tasks": (tasks,)})
    refuse_used(output, overwrite=overwrite)
    chosen = choose(tasks, number, seed, number_ids=number_ids)
    kept = write_rows(tasks, output, chosen.__contains__, number_ids=number_ids)
    report(
        as_json,
        {"tasks": kept, "seed": seed, "output": str(output)},
        [
            f"{one_line(str(output))}: {kept} task{'' if kept == 1 else 's'}, selected with "
            f"seed {seed}"
        ],
    )


def choose(tasks: Path, number: int, seed: int, *, number_ids: bool = False) -> set[str]:
    """The ids of a random subset: those whose digest with the seed is smallest.

    Raises:
        UserError: a row is wrong, or the file has fewer tasks.
    """
    from gymmesh_client.problems import UserError

    ids = [row.task.task_id for row in _rows(tasks, number_ids)]
    if len(ids) < number:
        raise UserError(
            f"{tasks} has fewer tasks ({len(ids)}) than --number {number}. Pass a smaller --number"
        )

    def rank(task_id: str) -> bytes:
        return hashlib.sha256(f"{seed}:{task_id}".encode()).digest()

    return set(heapq.nsmallest(number, ids, key=rank))


def write_rows(
    tasks: Path, output: Path, keep: Callable[[str], bool], *, number_ids: bool = False
) -> int:
    """Copy the rows of the tasks whose ids are kept, and return how many.

    Raises:
        UserError: a row is wrong, or a file cannot be read or written.
    """
    from gymmesh_client.problems import unreadable, unwritable
    from gymmesh_client.safe_writes import make_folder, replaced

    kept = 0
    try:
        make_folder(output.parent)
        with tasks.open("rb") as source, replaced(output) as draft, draft.open("wb") as file:
            for row in _rows(tasks, number_ids):
                if keep(row.task.task_id):
                    source.seek(row.offset)
                    file.write(source.readline().rstrip(b"\r\n") + b"\n")
                    kept += 1
    except OSError as error:
        failed = unreadable(tasks, error) if error.filename == str(tasks) else None
        raise failed or unwritable(output, error) from None
    return kept


def _rows(tasks: Path, number_ids: bool) -> Iterator[TaskRow]:
    from gymmesh_cli.shared.task_choice import right_rows
    from gymmesh_client.tasks import TaskDefaults, TaskReader

    reader = TaskReader(TaskDefaults("any", "any"), number_repeated_ids=number_ids)
    return right_rows(reader, tasks)
