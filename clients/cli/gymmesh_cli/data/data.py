"""gym-cli data: check, generate, show and compact files of tasks and rollouts."""

from __future__ import annotations

from pathlib import Path

import click

from gymmesh_cli.data.generate import generate
from gymmesh_cli.data.harbor import harbor
from gymmesh_cli.data.show import show, trace
from gymmesh_cli.options import FILE, json_option, number_ids_option
from gymmesh_cli.terminal import report


@click.group()
def data() -> None:
    """Work with task files."""


data.add_command(generate)
data.add_command(harbor)
data.add_command(show)
data.add_command(trace)


@data.command(short_help="Say which line and which key of a task file is wrong.")
@click.argument("files", nargs=-1, type=FILE)
@click.option(
    "--config",
    "-c",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Ask the environments of this configuration whether they can take the rows, too.",
)
@number_ids_option
@json_option
def validate(
    files: tuple[Path, ...], config: tuple[Path, ...], number_ids: bool, as_json: bool
) -> int:
    """Say which line and which key of a task file is wrong, and how to mend it.

    \b
      gym-cli data validate tasks.jsonl
      gym-cli data validate --config mesh.yaml tasks.jsonl more.jsonl
      gym-cli data validate --config mesh.yaml

    Without a file, the example tasks of the default environment are checked. With --config the
    names of environments and agents are checked, and each row by the environment that it is for;
    no model is called and nothing is started.

    Exit code 0 when every row is right, 1 when one is wrong or there is none, 2 for a
    configuration that cannot be used.
    """
    from gymmesh_cli.data.validation import validate_files

    if not files and not config:
        raise click.UsageError("name a task file, or a configuration with --config")
    return validate_files(files, config, number_ids=number_ids, as_json=as_json)


@data.command(short_help="Take superseded rows out of a run's files.")
@click.argument("output", type=FILE)
@json_option
def compact(output: Path, as_json: bool) -> None:
    """Take superseded rows out of a run's files, so that each rollout is in them once.

    \b
      gym-cli data compact rollouts.jsonl

    OUTPUT is what was given to `gym-cli collect --output`. A run does this by itself at its end, so
    this is for one that was killed after `--retry` and is not gone on with. The rows go to
    NAME.superseded.jsonl. A run that a collector is writing to is refused.
    """
    from gymmesh_client.output import compact_run

    dropped = compact_run(output)
    rows = "1 superseded row" if dropped == 1 else f"{dropped} superseded rows"
    report(as_json, {"superseded": dropped}, [f"{output}: {rows} taken out"])
