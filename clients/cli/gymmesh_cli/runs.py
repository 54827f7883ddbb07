"""gym-cli runs: look at what is being collected, and steer it; join shards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import click

from gymmesh.run.v1 import run_pb2
from gymmesh_cli.exits import DONE, speaks_plainly
from gymmesh_cli.merge import merge
from gymmesh_cli.options import json_option
from gymmesh_cli.terminal import echo, echo_json, one_line
from gymmesh_client.boundaries import boundary_name
from gymmesh_client.control import RemoteRun, find_run, open_runs
from gymmesh_runtime.errors import MeshError

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
    found = asyncio.run(_snapshots())
    if as_json:
        echo_json({"runs": [run_document(run) for run in found]})
        return DONE
    if not found:
        echo("no run is being collected by this user on this machine")
    for run in found:
        echo(_line(run))
    return DONE


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
    _say(_with_run(run_id, RemoteRun.get), as_json)
    return DONE


@runs.command("pause", short_help="Start no more rollouts for now.")
@_RUN
@json_option
@speaks_plainly
def pause(run_id: str, as_json: bool) -> int:
    """What is in flight goes on; `gym-cli runs resume` starts more."""
    return _control(run_id, run_pb2.ControlRunRequest(pause=run_pb2.PauseRun()), as_json)


@runs.command("resume", short_help="Go on with a paused run.")
@_RUN
@json_option
@speaks_plainly
def resume(run_id: str, as_json: bool) -> int:
    """Undoes `gym-cli runs pause`."""
    return _control(run_id, run_pb2.ControlRunRequest(resume=run_pb2.ResumeRun()), as_json)


@runs.command("drain", short_help="Let what is in flight end, then stop.")
@_RUN
@json_option
@speaks_plainly
def drain(run_id: str, as_json: bool) -> int:
    """As the first Ctrl-C in the run's own terminal, without its grace period.

    `gym-cli collect --resume` goes on later.
    """
    return _control(run_id, run_pb2.ControlRunRequest(drain=run_pb2.DrainRun()), as_json)


@runs.command("cancel", short_help="Cancel what is in flight, then stop.")
@_RUN
@json_option
@speaks_plainly
def cancel(run_id: str, as_json: bool) -> int:
    """Finished rollouts stay; `gym-cli collect --resume` runs the others."""
    return _control(run_id, run_pb2.ControlRunRequest(cancel=run_pb2.CancelRun()), as_json)


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
    command = run_pb2.CancelGroup(task_id=task_id)
    return _control(run_id, run_pb2.ControlRunRequest(cancel_group=command), as_json)


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
    tune = run_pb2.TuneRun()
    for setting in settings:
        key, equals, value = setting.partition("=")
        if key != "concurrency" or not equals:
            raise click.UsageError(f"{setting!r}: the one setting is concurrency=NUMBER")
        if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= 1_000_000):
            raise click.UsageError(f"concurrency must be a whole number from 1 on, not {value!r}")
        tune.concurrency = int(value)
    return _control(run_id, run_pb2.ControlRunRequest(tune=tune), as_json)


def run_document(run: run_pb2.Run) -> dict[str, Any]:
    """A run as JSON."""
    return {
        "run_id": run.run_id,
        "state": _state(run),
        "requested": run.requested,
        "completed": run.completed,
        "failed": run.failed,
        "in_flight": run.in_flight,
        "concurrency": run.concurrency,
        "failures": {_boundary(one.boundary): one.count for one in run.failures},
        "mean_reward": run.mean_reward if run.HasField("mean_reward") else None,
        "started_at": run.started_unix_nano / 1e9,
        "output": run.output,
    }


def _control(run_id: str, request: run_pb2.ControlRunRequest, as_json: bool) -> int:
    _say(_with_run(run_id, lambda run: run.control(request)), as_json)
    return DONE


def _with_run(wanted: str, call: Callable[[RemoteRun], Awaitable[run_pb2.Run]]) -> run_pb2.Run:
    async def find_and_call() -> run_pb2.Run:
        async with open_runs() as found:
            return await call(find_run(found, wanted))

    return asyncio.run(find_and_call())


async def _snapshots() -> list[run_pb2.Run]:
    async with open_runs() as found:
        answers = await asyncio.gather(*(run.get() for run in found), return_exceptions=True)
    snapshots = []
    for run, answer in zip(found, answers, strict=True):
        if isinstance(answer, MeshError):
            problem = f"gym-cli: run {run.run_id} does not answer: {answer.message}"
            echo(one_line(problem), err=True)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            snapshots.append(answer)
    return snapshots


def _say(run: run_pb2.Run, as_json: bool) -> None:
    if as_json:
        echo_json(run_document(run))
    else:
        echo(_line(run))


def _line(run: run_pb2.Run) -> str:
    parts = [
        run.run_id,
        _state(run),
        f"{run.completed + run.failed} of {run.requested}",
        f"{run.in_flight} in flight (at most {run.concurrency})",
    ]
    if run.failed:
        failures = ", ".join(f"{_boundary(one.boundary)} {one.count}" for one in run.failures)
        parts.append(f"{run.failed} failed ({failures})")
    if run.HasField("mean_reward"):
        parts.append(f"mean reward {run.mean_reward:.3f}")
    minutes, seconds = divmod(int(time.time() - run.started_unix_nano / 1e9), 60)
    parts.append(f"since {minutes}:{seconds:02d}")
    parts.append(run.output)
    return one_line("  ".join(parts))


def _state(run: run_pb2.Run) -> str:
    return run_pb2.RunState.Name(run.state).removeprefix("RUN_STATE_").lower()


def _boundary(number: int) -> str:
    return boundary_name(number) or str(number)
