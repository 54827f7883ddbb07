"""gym-cli runs: look at what is being collected, and steer it; join shards.

What its commands do is in `steering`, imported when one runs.
"""

from __future__ import annotations

from typing import Final

import click

from gymmesh_cli.options import json_option
from gymmesh_cli.runs.merge import merge

_RUN: Final = click.argument("run_id", metavar="[RUN]", default="")
# The commands that say nothing more: name, line in the list, and what it does.
_CONTROLS: Final = (
    (
        "pause",
        "Start no more rollouts for now.",
        "What is in flight goes on; `gym-cli runs resume` starts more.",
    ),
    ("resume", "Go on with a paused run.", "Undoes `gym-cli runs pause`."),
    (
        "drain",
        "Let what is in flight end, then stop.",
        "As the first Ctrl-C in the run's own terminal, without its grace period.\n\n"
        "`gym-cli collect --resume` goes on later.",
    ),
    (
        "cancel",
        "Cancel what is in flight, then stop.",
        "Finished rollouts stay; `gym-cli collect --resume` runs the others.",
    ),
)


@click.group()
def runs() -> None:
    """The runs that your processes on this machine collect now; and joining their shards.

    RUN is a run's id or its beginning; it may be left out when there is only one.
    """


runs.add_command(merge)


@runs.command("list", short_help="The runs that are being collected.")
@json_option
def list_runs(as_json: bool) -> None:
    """A line for each run.

    \b
      gym-cli runs list
    """
    from gymmesh_cli.runs import steering

    steering.list_runs(as_json)


@runs.command("show", short_help="One run.")
@_RUN
@json_option
def show(run_id: str, as_json: bool) -> None:
    """How far a run is.

    \b
      gym-cli runs show
      gym-cli runs show run-3f2a --json
    """
    from gymmesh_cli.runs import steering

    steering.show(run_id, as_json)


def _add_control(name: str, line: str, does: str) -> None:
    @runs.command(name, short_help=line, help=does)
    @_RUN
    @json_option
    def control(run_id: str, as_json: bool) -> None:
        from gymmesh_cli.runs import steering

        steering.control(run_id, as_json, **{name: {}})


for _control in _CONTROLS:
    _add_control(*_control)


@runs.command("cancel-task", short_help="Cancel the rollouts of one task.")
@click.argument("task_id", metavar="TASK")
@_RUN
@json_option
def cancel_task(task_id: str, run_id: str, as_json: bool) -> None:
    """Its repeats that are in flight are cancelled, and no more are started.

    \b
      gym-cli runs cancel-task gsm8k-17
    """
    from gymmesh_cli.runs import steering

    steering.control(run_id, as_json, cancel_group={"task_id": task_id})


@runs.command("set", short_help="Change a run's settings.")
@click.argument("settings", metavar="KEY=VALUE…", nargs=-1, required=True)
@click.option("--run", "run_id", default="", help="The run; needed when there are several.")
@json_option
def set_(settings: tuple[str, ...], run_id: str, as_json: bool) -> None:
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
    steering.control(run_id, as_json, tune={"concurrency": concurrency})
