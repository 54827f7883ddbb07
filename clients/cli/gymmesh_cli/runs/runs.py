"""gym-cli runs: look at what is being collected, and steer it; join shards.

What its commands do is in `steering`, imported when one runs.
"""

from __future__ import annotations

from typing import Final

import click

from gymmesh_cli.options.shared import json_option
from gymmesh_cli.runs.merge import merge
from gymmesh_cli.terminal.exits import speaks_plainly

_RUN: Final = click.argument("run_id", metavar="[RUN]", default="")


@click.group(short_help="Look at runs, steer them, and join shards.")
def runs() -> None:
    """The runs that your processes on this machine collect now; and joining their shards.

    RUN is a run's id or its beginning; it may be left out when there is only one.
    """


runs.add_command(merge)


@runs.command("list", short_help="The runs that are being collected.")
@json_option
@speaks_plainly
def list_runs(as_json: bool) -> int:
    """A line for each run.

    \b
      gym-cli runs list
    """
    from gymmesh_cli.runs import steering

    return steering.list_runs(as_json)


@runs.command("show", short_help="One run.")
@_RUN
@json_option
@speaks_plainly
def show(run_id: str, as_json: bool) -> int:
    """How far a run is.

    \b
      gym-cli runs show
      gym-cli runs show run-3f2a --json
    """
    from gymmesh_cli.runs import steering

    return steering.show(run_id, as_json)


@runs.command("pause", short_help="Start no more rollouts for now.")
@_RUN
@json_option
@speaks_plainly
def pause(run_id: str, as_json: bool) -> int:
    """What is in flight goes on; `gym-cli runs resume` starts more."""
    from gymmesh_cli.runs import steering

    return steering.command("pause", run_id, as_json)


@runs.command("resume", short_help="Go on with a paused run.")
@_RUN
@json_option
@speaks_plainly
def resume(run_id: str, as_json: bool) -> int:
    """Undoes `gym-cli runs pause`."""
    from gymmesh_cli.runs import steering

    return steering.command("resume", run_id, as_json)


@runs.command("drain", short_help="Let what is in flight end, then stop.")
@_RUN
@json_option
@speaks_plainly
def drain(run_id: str, as_json: bool) -> int:
    """As the first Ctrl-C in the run's own terminal, without its grace period.

    `gym-cli collect --resume` goes on later.
    """
    from gymmesh_cli.runs import steering

    return steering.command("drain", run_id, as_json)


@runs.command("cancel", short_help="Cancel what is in flight, then stop.")
@_RUN
@json_option
@speaks_plainly
def cancel(run_id: str, as_json: bool) -> int:
    """Finished rollouts stay; `gym-cli collect --resume` runs the others."""
    from gymmesh_cli.runs import steering

    return steering.command("cancel", run_id, as_json)


@runs.command("cancel-task", short_help="Cancel the rollouts of one task.")
@click.argument("task_id", metavar="TASK")
@_RUN
@json_option
@speaks_plainly
def cancel_task(task_id: str, run_id: str, as_json: bool) -> int:
    """Its repeats that are in flight are cancelled, and no more are started.

    \b
      gym-cli runs cancel-task gsm8k-17
    """
    from gymmesh_cli.runs import steering

    return steering.cancel_task(run_id, task_id, as_json)


@runs.command("set", short_help="Change a run's settings.")
@click.argument("settings", metavar="KEY=VALUE…", nargs=-1, required=True)
@click.option("--run", "run_id", default="", help="The run; needed when there are several.")
@json_option
@speaks_plainly
def set_(settings: tuple[str, ...], run_id: str, as_json: bool) -> int:
    """The one key there is: `concurrency`, the most rollouts in flight.

    \b
      gym-cli runs set concurrency=128
    """
    from gymmesh_cli.runs import steering

    concurrency = 0
    for setting in settings:
        key, equals, value = setting.partition("=")
        if key != "concurrency" or not equals:
            raise click.UsageError(f"{setting!r}: the one setting is concurrency=NUMBER")
        if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= 1_000_000):
            raise click.UsageError(f"concurrency must be a whole number from 1 on, not {value!r}")
        concurrency = int(value)
    return steering.set_concurrency(run_id, concurrency, as_json)
