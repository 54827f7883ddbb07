"""gym-cli runs merge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gymmesh_cli.options import FILE, json_option
from gymmesh_cli.terminal import echo, one_line, report

if TYPE_CHECKING:
    from gymmesh_client import RunSummary

# Of a shard: its rows, failures, index and journal; and some for the command itself.
_FILES_PER_SHARD: Final = 4
_FILES_BESIDE: Final = 64


@click.command("merge", short_help="Join the outputs of a run's shards.")
@click.argument("output", metavar="OUTPUT", type=FILE)
@click.argument("shards", metavar="SHARD…", nargs=-1, required=True, type=FILE)
@click.option("--overwrite", is_flag=True, help="Replace a run that is there already.")
@click.option(
    "--shard-rows",
    type=click.IntRange(min=1),
    metavar="N",
    help="Write N rows to a file, and go on with the next: OUTPUT-00000.jsonl and so on.",
)
@click.option("--zstd", "compressed", is_flag=True, help="Compress the rows (adds .zst).")
@click.option(
    "--accept-change",
    "accept",
    multiple=True,
    type=click.Choice(["environments"]),
    help="Merge although shards were judged by different versions of an environment.",
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
    """Join the outputs of a run's shards into one, as `gym-cli collect` without --shard leaves it.

    \b
      gym-cli runs merge rollouts.jsonl shards/*/rollouts.jsonl

    SHARD is the --output of one; all of them must be there, each finished. They are only read.
    Rows stand in the order of the task file, a task's repeats together. The output can be read,
    gone on with and retried like any other.
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
    report(as_json, summary.to_dict(), _lines(summary, len(shards)))


def _lines(summary: RunSummary, shards: int) -> Iterator[str]:
    tally, mean = summary.tally, summary.tally.mean_reward
    of = "1 shard" if shards == 1 else f"{shards} shards"
    yield f"merged        {of} of run {summary.run_id}"
    yield f"rollouts      {tally.completed} completed, {tally.failed} failed"
    yield f"mean reward   {'none was verified' if mean is None else f'{mean:.3f}'}"
    yield f"rows          {summary.output}"
    if tally.failed:
        yield f"failed        {summary.failures_output}"
