"""gym-cli runs: show and control running collectors; join shards.

The code of the commands is in `steering`, which is imported when a command runs.
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
        "Pause a run: start no new rollouts.",
        (
            "Pause a run: start no new rollouts. Running rollouts continue. `gym-cli runs "
            "resume` resumes the run."
        ),
    ),
    ("resume", "Resume a paused run.", "Resume a run that `gym-cli runs pause` paused."),
    (
        "drain",
        "Stop a run after all running rollouts finish.",
        (
            "Start no new rollouts, wait until all running rollouts finish, then stop the "
            "run. The wait has no time limit, unlike the first Ctrl-C in the run's own "
            "terminal, which waits --grace seconds. `gym-cli collect --resume` resumes the "
            "run later."
        ),
    ),
    (
        "cancel",
        "Cancel a run's running rollouts, then stop the run.",
        (
            "Cancel the running rollouts, then stop the run. Finished rollouts are kept. "
            "`gym-cli collect --resume` runs the other rollouts later."
        ),
    ),
)


@click.group()
def runs() -> None:
    """List, control and merge runs.

    A run is one collection of rollouts. A run is active while a process of yours on this machine
    collects the rollouts. RUN is a run's id, or a prefix of the id. RUN is optional if only one run
    is active.
    """


runs.add_command(merge)


@runs.command("list", short_help="List active runs.")
@json_option
def list_runs(as_json: bool) -> None:
    """List active runs, one per line.

    \b
      gym-cli runs list
    """
    from gymmesh_cli.runs import steering

    steering.list_runs(as_json)


@runs.command("show", short_help="Show the progress of a run.")
@_RUN
@json_option
def show(run_id: str, as_json: bool) -> None:
    """Show the progress of a run.

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
    """Cancel the running rollouts of one task, and start no more rollouts of this task. TASK is the
    task's id.

    \b
      gym-cli runs cancel-task gsm8k-17
      gym-cli runs cancel-task gsm8k-17 run-3f2a
    """
    from gymmesh_cli.runs import steering

    steering.control(run_id, as_json, cancel_group={"task_id": task_id})


@runs.command("set", short_help="Change a setting of a run.")
@click.argument("setting", metavar="KEY=VALUE")
@_RUN
@json_option
def set_(setting: str, run_id: str, as_json: bool) -> None:
    """Change a setting of an active run. The only KEY is `concurrency`: the maximum number of
    rollouts at a time.

    \b
      gym-cli runs set concurrency=128
      gym-cli runs set concurrency=128 run-3f2a
    """
    from gymmesh_cli.runs import steering

    key, equals, value = setting.partition("=")
    if key != "concurrency" or not equals:
        raise click.UsageError(
            f"{setting!r}: only concurrency=NUMBER can be set, and RUN comes after it"
        )
    if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= 1_000_000):
        raise click.UsageError(f"concurrency must be a whole number of at least 1, not {value!r}")
    steering.control(run_id, as_json, tune={"concurrency": int(value)})
