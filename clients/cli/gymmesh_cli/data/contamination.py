"""gym-cli data contamination: find tasks that are in training files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gymmesh_cli.options import FILE, json_option
from gymmesh_cli.terminal import DONE, WITH_FAILURES, echo, one_line, report

if TYPE_CHECKING:
    from gymmesh_data.contamination import Contamination

_SHOWN: Final = 20


@click.command(short_help="Find tasks whose texts are in training files.")
@click.argument("tasks", type=FILE)
@click.option(
    "--against",
    "-a",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=(
        "A training file (JSON lines, JSON, Parquet, CSV, or plain text: .txt, .md, .text), or "
        "a folder of training files. Repeatable."
    ),
)
@click.option(
    "--words",
    type=click.IntRange(min=8),
    default=13,
    show_default=True,
    metavar="N",
    help=(
        "Compare sequences of N consecutive words (n-grams). A text of 8 to N - 1 words "
        "is compared as a whole."
    ),
)
@click.option(
    "--share",
    type=click.FloatRange(min=0, max=1, min_open=True),
    default=0.5,
    show_default=True,
    metavar="S",
    help=(
        "Report a task if one of the task's texts has at least this share of its n-grams "
        "in the training files."
    ),
)
@click.option(
    "--shared-by",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help=("Ignore n-grams that are in more than N tasks, such as n-grams of common instructions."),
)
@click.option(
    "--canary",
    multiple=True,
    metavar="TEXT",
    help=("Also search the training files for this canary text. Repeatable."),
)
@click.option(
    "--write-clean",
    type=FILE,
    help=(
        "Write the tasks that were not found in the training files to this file. Canaries that "
        "were found remove no task."
    ),
)
@click.option("--overwrite", is_flag=True, help="Replace an existing file of --write-clean.")
@json_option
def contamination(
    tasks: Path,
    against: tuple[Path, ...],
    words: int,
    share: float,
    shared_by: int,
    canary: tuple[str, ...],
    write_clean: Path | None,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Find the tasks of a task file whose texts or canaries are in training files. A canary is a
    unique text that marks test data.

    \b
      gym-cli data contamination tasks.jsonl --against corpus.jsonl
      gym-cli data contamination tasks.jsonl --against corpus/ --write-clean clean.jsonl

    The texts of a task are the prompt, without system and developer messages, and the texts that
    the verifier reads. The command compares sequences of words (n-grams) of these texts, and
    ignores case and punctuation. The canary of a task is the value of the task row's key `canary`,
    or a UUID after the word "canary" in a text of the task.

    Exit code 0: no task and no canary was found. 1: a file can't be read or written. 3: a task or a
    canary was found.
    """
    from gymmesh_client.safe_writes import refuse_inputs, refuse_used
    from gymmesh_data.contamination import ContaminationOptions, find_contamination

    if write_clean is not None:
        refuse_inputs([write_clean], {"the tasks": (tasks, *against)})
        refuse_used(write_clean, overwrite=overwrite)
    options = ContaminationOptions(words, share, shared_by, canary)
    made = find_contamination(tasks, against, options)
    report(as_json, asdict(made), _lines(made))
    if write_clean is not None:
        from gymmesh_cli.data.sample import write_rows

        found = {one.task_id for one in made.found}
        kept = write_rows(tasks, write_clean, lambda task_id: task_id not in found)
        echo(f"clean         tasks: {kept} in {one_line(str(write_clean))}", err=as_json)
    return WITH_FAILURES if made.found or made.canaries else DONE


def _lines(made: Contamination) -> Iterable[str]:
    yield f"tasks         {made.tasks}, found in the training files: {len(made.found)}"
    yield f"compared      {made.texts} training texts"
    if made.not_compared:
        yield (
            f"not compared  {made.not_compared} of the tasks: the texts are too short, or "
            "are in many tasks"
        )
    if made.unread:
        yield (
            f"not read      {sum(made.unread.values())} files of other types in the folder: "
            + ", ".join(f"{count} {ending}" for ending, count in made.unread.items())
        )
    yield f"canaries      {made.looked_for} searched for, {len(made.canaries)} found"
    for canary in made.canaries:
        yield f"canary        {canary.canary} at {canary.where}"
    for one in made.found[:_SHOWN]:
        yield f"found         {one.task_id}: {one.share:.0%} of {one.part} at {one.where}"
    if len(made.found) > _SHOWN:
        yield f"… more tasks: {len(made.found) - _SHOWN}; --json lists all tasks"
    for text in made.refused[:_SHOWN]:
        yield f"not read      {text}"
    if len(made.refused) > _SHOWN:
        yield f"… more rows that could not be read: {len(made.refused) - _SHOWN}"
