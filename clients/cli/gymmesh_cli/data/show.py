"""gym-cli data show and gym-cli data trace: one rollout of a run, however large it is."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gymmesh_cli.options import FILE, json_option, together
from gymmesh_cli.terminal import echo, echo_json, echo_json_line, one_line, report

if TYPE_CHECKING:
    from gymmesh_client import Attempt, RunReader

_which_rollout = together(
    click.argument("output", type=FILE),
    click.option("--rollout", metavar="ID", help="Print the rollout with this id."),
    click.option("--task", metavar="ID", help="Print the rollouts of the task with this id."),
    click.option(
        "--repeat",
        type=click.IntRange(min=0),
        help=("With --task: only the repeat with this number, counted from 0."),
    ),
)


@click.command(short_help="Print rollouts of a run as JSON, or list attempts.")
@_which_rollout
@click.option(
    "--attempts", is_flag=True, help="List the outcomes of all attempts instead of the row."
)
@json_option
def show(
    output: Path,
    rollout: str | None,
    task: str | None,
    repeat: int | None,
    attempts: bool,
    as_json: bool,
) -> None:
    """Print the rows of one rollout or one task, or the outcomes of the attempts.

    \b
      gym-cli data show rollouts.jsonl --task sum-1 --repeat 0
      gym-cli data show rollouts.jsonl --rollout ro-d7623eac7204a3184e2a-0
      gym-cli data show rollouts.jsonl --task sum-1 --attempts

    OUTPUT is the --output of `gym-cli collect`. The run can still be active. The command prints
    rows as they are in the file, one JSON object per line. Terminal control characters are printed
    as \\u escapes.
    """
    from gymmesh_client import open_run

    with open_run(output) as run:
        for name in _chosen(run, output, rollout, task, repeat):
            if attempts:
                for one in run.attempts(name):
                    report(as_json, _fields(name, one), [_text(name, one)])
                continue
            line = run.line(name)
            if line is not None:
                echo_json_line(line)


@click.command(short_help="Print the events of a rollout. The run needs --trace.")
@_which_rollout
@click.option(
    "--attempt",
    type=click.IntRange(min=1),
    help="Number of the attempt, counted from 1. Default: the last attempt.",
)
@json_option
def trace(
    output: Path,
    rollout: str | None,
    task: str | None,
    repeat: int | None,
    attempt: int | None,
    as_json: bool,
) -> None:
    """Print the events of one rollout of a run that `gym-cli collect --trace` collected.

    \b
      gym-cli data trace rollouts.jsonl --task sum-1 --repeat 0
      gym-cli data trace rollouts.jsonl --rollout ro-d7623eac7204a3184e2a-0 --attempt 1 --json

    OUTPUT is the --output of `gym-cli collect`. With --json, the command prints each event as JSON
    (protobuf's JSON mapping).
    """
    from gymmesh_client import UserError, open_run, open_trace

    with open_run(output) as run:
        names = _chosen(run, output, rollout, task, repeat)
    with open_trace(output) as traces:
        for name in names:
            events = traces.events(name, attempt)
            if not events:
                which = "" if attempt is None else f" attempt {attempt}"
                raise UserError(
                    f"{output}: rollout {name}{which} has no trace. Only gym-cli collect --trace "
                    "keeps traces"
                )
            if not as_json:
                echo(f"{one_line(name)} attempt {events[0].attempt}")
            _print(events, as_json=as_json)


def _chosen(
    run: RunReader, output: Path, rollout: str | None, task: str | None, repeat: int | None
) -> list[str]:
    """The ids of the rollouts to show; raises UsageError and UserError."""
    from gymmesh_client import UserError

    if (rollout is None) == (task is None):
        raise click.UsageError("select rollouts with exactly one of --rollout and --task")
    if repeat is not None and task is None:
        raise click.UsageError("--repeat selects a repeat of a task; add --task")
    if rollout is not None:
        names, asked = [rollout], f"rollout {rollout!r}"
    else:
        assert task is not None
        names, asked = run.task_rollouts(task), f"task {task!r}"
        if repeat is not None:
            wanted = run.rollout_id(task, repeat)
            names, asked = [one for one in names if one == wanted], f"{asked} repeat {repeat}"
    names = [one for one in names if run.attempts(one)]
    if not names:
        raise UserError(f"{output}: {asked} has no outcome yet")
    return names


def _fields(name: str, attempt: Attempt) -> dict[str, Any]:
    return {
        "rollout_id": name,
        "attempt": attempt.attempt,
        "ended": _when(attempt),
        "outcome": attempt.outcome,
        "boundary": _boundary(attempt),
        "current": attempt.current,
        "superseded": attempt.superseded,
        "damaged": attempt.damaged,
    }


def _text(name: str, attempt: Attempt) -> str:
    words = [name, f"attempt {attempt.attempt}", _when(attempt), attempt.outcome]
    if attempt.boundary:
        words.append(f"at {_boundary(attempt)}")
    if attempt.superseded:
        words.append(f"(superseded: {attempt.superseded})")
    elif not attempt.current:
        words.append("(retried)")
    if attempt.damaged:
        words.append("(the row was changed after the run wrote it)")
    return " ".join(words)


def _when(attempt: Attempt) -> str:
    ended = datetime.fromtimestamp(attempt.time_unix_nano / 1e9, UTC)
    return ended.isoformat(timespec="milliseconds")


def _boundary(attempt: Attempt) -> str:
    from gymmesh_client.boundaries import boundary_name

    return boundary_name(attempt.boundary) if attempt.boundary else ""


def _print(events: list[Any], *, as_json: bool) -> None:
    from google.protobuf import json_format

    from gymmesh.rollout.v1 import rollout_pb2
    from gymmesh_cli.terminal.events import EventPrinter
    from gymmesh_client import FailedAttempt

    printer = EventPrinter()
    for event in events:
        if as_json:
            echo_json(json_format.MessageToDict(event, True))
        elif event.WhichOneof("event") == "failed":
            printer.failure(FailedAttempt(event.failed.failure, rollout_pb2.Rollout()))
        else:
            printer.show(event)
