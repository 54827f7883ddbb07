"""The code of gym-cli runs: finds the runs of this user, asks them, and prints their answers.

Each function that a command calls prints. Raises UserError for a run that does not exist, and
MeshError for a run that does not answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from gymmesh.run.v1 import run_pb2
from gymmesh_cli.terminal import echo, one_line, report
from gymmesh_client.boundaries import boundary_name
from gymmesh_client.control import RemoteRun, find_run, open_runs
from gymmesh_runtime.errors import MeshError


def list_runs(as_json: bool) -> None:
    """Print a line for each run, or all as one JSON document."""
    found = asyncio.run(_snapshots())
    lines = [_line(run) for run in found]
    none = ["this user has no active run on this machine"]
    report(as_json, {"runs": [run_document(run) for run in found]}, lines or none)


def show(run_id: str, as_json: bool) -> None:
    """Print the progress of a run."""
    _show(run_id, RemoteRun.get, as_json)


def control(run_id: str, as_json: bool, **command: Any) -> None:
    """Send a command to a run: a field of ControlRunRequest, with its own fields."""
    request = run_pb2.ControlRunRequest(**command)
    _show(run_id, lambda run: run.control(request), as_json)


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
        "failures": {boundary_name(one.boundary): one.count for one in run.failures},
        "mean_reward": run.mean_reward if run.HasField("mean_reward") else None,
        "started_at": run.started_unix_nano / 1e9,
        "output": run.output,
    }


def _show(wanted: str, call: Callable[[RemoteRun], Awaitable[run_pb2.Run]], as_json: bool) -> None:
    """Print what a run answers to a call."""

    async def find_and_call() -> run_pb2.Run:
        async with open_runs() as found:
            return await call(find_run(found, wanted))

    run = asyncio.run(find_and_call())
    report(as_json, run_document(run), [_line(run)])


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


def _line(run: run_pb2.Run) -> str:
    parts = [
        run.run_id,
        _state(run),
        f"{run.completed + run.failed} of {run.requested} rollouts ended",
        f"{run.in_flight} in flight (at most {run.concurrency})",
    ]
    if run.failed:
        failures = ", ".join(f"{boundary_name(one.boundary)} {one.count}" for one in run.failures)
        parts.append(f"{run.failed} failed ({failures})")
    if run.HasField("mean_reward"):
        parts.append(f"mean reward {run.mean_reward:.3f}")
    minutes, seconds = divmod(int(time.time() - run.started_unix_nano / 1e9), 60)
    parts.append(f"running for {minutes}:{seconds:02d} (min:s)")
    parts.append(run.output)
    return "  ".join(parts)


def _state(run: run_pb2.Run) -> str:
    return run_pb2.RunState.Name(run.state).removeprefix("RUN_STATE_").lower()
