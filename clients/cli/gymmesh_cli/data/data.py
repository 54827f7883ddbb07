"""gym-cli data: check, generate, show and compact files of tasks and rollouts."""

from __future__ import annotations

from pathlib import Path

import click

from gymmesh_cli.data.contamination import contamination
from gymmesh_cli.data.generate import generate
from gymmesh_cli.data.harbor import harbor
from gymmesh_cli.data.sample import sample
from gymmesh_cli.data.show import show, trace
from gymmesh_cli.options import FILE, json_option, number_ids_option
from gymmesh_cli.terminal import report


@click.group()
def data() -> None:
    """Check, generate and inspect task files and runs."""


data.add_command(contamination)
data.add_command(generate)
data.add_command(harbor)
data.add_command(sample)
data.add_command(show)
data.add_command(trace)


@data.command(short_help="Check task files and report the line and key of each error.")
@click.argument("files", nargs=-1, type=FILE)
@click.option(
    "--config",
    "-c",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Let the environments of this configuration also check the rows.",
)
@number_ids_option
@json_option
def validate(
    files: tuple[Path, ...], config: tuple[Path, ...], number_ids: bool, as_json: bool
) -> int:
    """Check task files. Report the line and key of each error, and a fix.

    \b
      gym-cli data validate tasks.jsonl
      gym-cli data validate --config mesh.yaml tasks.jsonl more.jsonl
      gym-cli data validate --config mesh.yaml

    With --config and without FILES, the command checks the example tasks of the default
    environment. With --config, the command also checks the names of environments and agents in the
    rows, and each environment checks the rows that name the environment. The command calls no model
    and starts no service.

    Exit code 0: all rows are valid. 1: a row is invalid, or there are no rows. 2: the configuration
    is invalid.
    """
    from gymmesh_cli.data.validation import validate_files

    if not files and not config:
        raise click.UsageError("pass a task file, or a configuration with --config")
    return validate_files(files, config, number_ids=number_ids, as_json=as_json)


@data.command(short_help="Remove rows that a retry replaced from a run's files.")
@click.argument("output", type=FILE)
@json_option
def compact(output: Path, as_json: bool) -> None:
    """Remove superseded rows (rows that a retry replaced) from a run's files. The files then have
    one row for each rollout.

    \b
      gym-cli data compact rollouts.jsonl

    OUTPUT is the --output of `gym-cli collect`. The superseded rows move to NAME.superseded.jsonl.
    `gym-cli collect` does the same at the end of a run. Use this command if a run with `--retry`
    was killed and you don't want to resume the run. The command rejects an active run.
    """
    from gymmesh_client.output import compact_run

    dropped = compact_run(output)
    rows = "1 superseded row" if dropped == 1 else f"{dropped} superseded rows"
    report(as_json, {"superseded": dropped}, [f"{output}: {rows} removed"])
