"""gym-cli runs merge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gymmesh_cli.collect import resume_command
from gymmesh_cli.options import FILE, json_option
from gymmesh_cli.terminal import echo, one_line, report

if TYPE_CHECKING:
    from gymmesh_client import RunSummary

# Of a shard: its rows, failures, index and journal; and some for the command itself.
_FILES_PER_SHARD: Final = 4
_FILES_BESIDE: Final = 64


@click.command("merge", short_help="Merge the outputs of a run's shards.")
@click.argument("output", metavar="OUTPUT", type=FILE)
@click.argument("shards", metavar="SHARD…", nargs=-1, required=True, type=FILE)
@click.option("--overwrite", is_flag=True, help="Replace an existing run.")
@click.option(
    "--shard-rows",
    type=click.IntRange(min=1),
    metavar="N",
    help=("Split the rows into files of N rows: OUTPUT-00000.jsonl, OUTPUT-00001.jsonl and so on."),
)
@click.option(
    "--zstd",
    "compressed",
    is_flag=True,
    help="Compress the rows with Zstandard. File names then end with .zst.",
)
@click.option(
    "--accept-change",
    "accept",
    multiple=True,
    type=click.Choice(["environments"]),
    help=(
        "environments: merge the shards although different versions of an environment "
        "scored the shards."
    ),
)
@json_option
def merge(
    output: Path,
    shards: tuple[Path, ...],
    overwrite: bool,
    shard_rows: int | None,
    compressed: bool,
    accept: tuple[str, ...],
    as_json: bool,
) -> None:
    """Merge the outputs of a run's shards into one output. The merged output is like the output of
    a run without --shard.

    \b
      gym-cli runs merge rollouts.jsonl shards/*/rollouts.jsonl

    OUTPUT is the new file. SHARD is the --output of one shard. Pass all shards. Every shard must be
    finished. The command does not change the shards' files. Rows keep the order of the task file,
    with the repeats of a task together. You can read, resume and retry the merged output like the
    output of any run.
    """
    from gymmesh_client import OutputFiles
    from gymmesh_client.output import merge as merge_shards
    from gymmesh_runtime.serving import allow_files

    allow_files(_FILES_BESIDE + _FILES_PER_SHARD * len(shards))
    files = OutputFiles(output, shard_rows, compressed)
    summary = merge_shards(
        shards,
        files,
        overwrite=overwrite,
        accept=accept,
        notify=lambda notice: echo(f"gym-cli: {one_line(notice)}", err=True),
    )
    report(as_json, summary.to_dict(), _lines(summary, len(shards), str(output)))


def _lines(summary: RunSummary, shards: int, output: str) -> Iterator[str]:
    tally, mean = summary.tally, summary.tally.mean_reward
    of = "1 shard" if shards == 1 else f"{shards} shards"
    yield f"merged        {of} of run {summary.run_id}"
    yield f"rollouts      {tally.completed} completed, {tally.failed} failed"
    yield f"mean reward   {'none: no rollout has a reward' if mean is None else f'{mean:.3f}'}"
    yield f"rows          {summary.output}"
    if tally.failed:
        yield f"failed        {summary.failures_output}"
        yield f"retry         {resume_command(output, tally.failed, 0)}"
