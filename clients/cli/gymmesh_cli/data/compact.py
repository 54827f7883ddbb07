"""gym-cli data compact."""

from __future__ import annotations

from pathlib import Path

import click

from gymmesh_cli.options.shared import FILE, json_option
from gymmesh_cli.terminal import echo, echo_json, one_line
from gymmesh_cli.terminal.exits import DONE, speaks_plainly


@click.command(short_help="Take superseded rows out of a run's files.")
@click.argument("output", type=FILE)
@json_option
@speaks_plainly
def compact(output: Path, as_json: bool) -> int:
    """Take superseded rows out of a run's files, so that each rollout is in them once.

    \b
      gym-cli data compact rollouts.jsonl

    OUTPUT is what was given to `gym-cli collect --output`. A run does this by itself at its end, so
    this is for one that was killed after `--retry` and is not gone on with. The rows go to
    NAME.superseded.jsonl. A run that a collector is writing to is refused.
    """
    from gymmesh_client.journal import compact_run

    dropped = compact_run(output)
    if as_json:
        echo_json({"superseded": dropped})
    else:
        rows = "1 superseded row" if dropped == 1 else f"{dropped} superseded rows"
        echo(f"{one_line(str(output))}: {rows} taken out")
    return DONE
