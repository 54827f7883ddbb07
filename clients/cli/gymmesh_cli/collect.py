"""gym-cli collect."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import click

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_cli.exits import (
    DONE,
    INTERRUPTED,
    NOTHING_DONE,
    WITH_FAILURES,
    say,
    speaks_plainly,
)
from gymmesh_cli.options import (
    MeshOptions,
    OutputOptions,
    agent_option,
    json_option,
    mesh_options,
    output_options,
)
from gymmesh_cli.progress import ProgressBar
from gymmesh_cli.session import MeshPlan, connector
from gymmesh_client import (
    CollectOptions,
    Collector,
    RetryPolicy,
    RunIdentity,
    RunOutput,
    RunSummary,
    Tally,
    TaskProblem,
    TaskReader,
    UserError,
    prepare,
    render,
    summarize,
)
from gymmesh_client.output import check
from gymmesh_mesh import Mesh
from gymmesh_runtime.exposition import MetricsEndpoint
from gymmesh_runtime.loop import run as run_loop

_SHOWN_PROBLEMS: Final = 5


@dataclass(frozen=True, slots=True)
class CollectCommand:
    """What the user asked for."""

    tasks: Path
    output: OutputOptions
    limit: int | None
    options: CollectOptions
    quiet: bool


@click.command(short_help="Collect verified rollouts of a task file.")
@mesh_options
@agent_option
@click.option(
    "--input",
    "-i",
    "tasks",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Tasks as JSON lines; NeMo Gym's task rows are taken as they are.",
)
@output_options
@click.option(
    "--num-repeats",
    "-n",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Rollouts per task.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1, max=100_000),
    default=64,
    show_default=True,
    help="The most rollouts in flight.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Use only the first tasks of the file.")
@click.option(
    "--max-attempts",
    type=click.IntRange(min=1, max=100),
    default=2,
    show_default=True,
    help="Attempts of a rollout that failed where a retry is safe.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True, max=86_400),
    default=900.0,
    show_default=True,
    metavar="SECONDS",
    help="How long one rollout may take.",
)
@click.option(
    "--grace",
    "grace_s",
    type=click.FloatRange(min=0, max=3600),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long rollouts in flight may go on after the first Ctrl-C.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(min=0, max=65535),
    metavar="PORT",
    help="Serve Prometheus metrics of this process on 127.0.0.1; 0: the system chooses the port, "
    "which is said on stderr.",
)
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@json_option
@speaks_plainly
def collect(
    mesh: MeshOptions,
    agent: tuple[str, ...],
    tasks: Path,
    output: OutputOptions,
    num_repeats: int,
    concurrency: int,
    limit: int | None,
    max_attempts: int,
    timeout_s: float,
    grace_s: float,
    metrics_port: int | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Collect verified rollouts of a task file.

    \b
    With the small model that comes with gymmesh:
      gym-cli collect --input tasks.jsonl --output rollouts.jsonl
    Four rollouts per task, with an endpoint of your own:
      gym-cli collect -i tasks.jsonl -o rollouts.jsonl -n 4 \\
          --model-url http://127.0.0.1:8000/v1 --model my-model
    With an API key, read from the environment:
      gym-cli collect … --set 'models.policy.api_key=${OPENAI_API_KEY}'
    Over gRPC, with a mesh started by `gym-cli up`:
      gym-cli collect -i tasks.jsonl -o rollouts.jsonl --agent 127.0.0.1:9400
    Go on after an interruption, and run again what failed:
      gym-cli collect … --resume
      gym-cli collect … --resume --retry failed

    A rollout that failed is never a reward of 0: it goes to the failures file with its cause.
    Ctrl-C once lets rollouts in flight end within --grace, twice stops at once.
    """
    options = CollectOptions(
        repeats=num_repeats,
        concurrency=concurrency,
        timeout_s=timeout_s,
        grace_s=grace_s,
        retry=RetryPolicy(max_attempts=max_attempts),
    )
    command = CollectCommand(tasks, output, limit, options, quiet)
    with _metrics(metrics_port):
        summary, interrupted = run_loop(_collect(command, MeshPlan.of(mesh, agent)))
    click.echo(json.dumps(summary.to_dict()) if as_json else render(summary))
    if interrupted:
        return say("interrupted; every finished row is on disk", INTERRUPTED)
    return exit_code(summary)


@contextmanager
def _metrics(port: int | None) -> Iterator[None]:
    """Serves this process's metrics meanwhile, when a port is given. Raises UserError."""
    if port is None:
        yield
        return
    try:
        endpoint = MetricsEndpoint.start("127.0.0.1", port)
    except OSError as error:
        raise UserError(
            f"--metrics-port {port}: cannot listen there ({error.strerror}); choose another"
        ) from None
    click.echo(f"gym-cli: metrics at http://{endpoint.address}/metrics", err=True)
    try:
        yield
    finally:
        endpoint.stop()


def exit_code(summary: RunSummary) -> int:
    """What a run that was not interrupted ends with."""
    if not summary.tally.failed:
        return DONE
    if not summary.tally.completed:
        first = summary.tally.first_failure
        return say(f"no rollout completed; the first failure: {first}", NOTHING_DONE)
    return WITH_FAILURES


async def _collect(command: CollectCommand, plan: MeshPlan) -> tuple[RunSummary, bool]:
    identity = RunIdentity.of(command.tasks, plan.identity())
    ids: list[str] | None = None
    if not plan.agents:
        # A wrong row is said before the models are loaded.
        ids = task_ids(plan.reader(), command.tasks, command.limit)
    output = command.output
    check(
        output.files,
        identity,
        overwrite=output.overwrite,
        resume=output.resume,
        accept=output.accept,
    )
    async with plan.open() as mesh:
        reader = plan.reader(mesh)
        if ids is None:
            ids = task_ids(reader, command.tasks, command.limit)
        return await _collect_with(command, mesh, reader, ids, identity)


async def _collect_with(
    command: CollectCommand,
    mesh: Mesh,
    reader: TaskReader,
    ids: list[str],
    identity: RunIdentity,
) -> tuple[RunSummary, bool]:
    asked, options, tally = command.output, command.options, Tally()
    output = prepare(
        asked.files,
        identity,
        overwrite=asked.overwrite,
        resume=asked.resume,
        accept=asked.accept,
        retry=asked.retry,
        repeats=options.repeats,
        trace=asked.trace,
        on_row=lambda row: tally.add_row(row, kept=True),
        on_failure=lambda row: tally.add_failure(row, kept=True),
    )
    requested = _requested(ids, options.repeats, output)
    bar = None if command.quiet else ProgressBar(requested, tally.completed + tally.failed)
    collector = Collector(
        connector(mesh, held=True),
        output,
        options,
        tally=tally,
        on_progress=bar.show if bar else lambda progress: None,
        stored=mesh.agents.stored,
    )
    started = time.monotonic()
    try:
        with interrupts_of(collector):
            await collector.run(islice(_tasks(reader, command.tasks), command.limit))
    finally:
        if bar is not None:
            bar.close()
    summary = summarize(
        tally,
        requested=requested,
        wall_s=time.monotonic() - started,
        repeats=options.repeats,
        output=output.files.shown,
        failures_output=str(output.files.failures),
    )
    return summary, collector.interrupted


@contextmanager
def interrupts_of(collector: Collector) -> Iterator[None]:
    """While open, Ctrl-C and SIGTERM interrupt the collector: once to drain, twice to stop."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, collector.interrupt)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def task_ids(reader: TaskReader, path: Path, limit: int | None) -> list[str]:
    """The ids of the tasks to run, once every row up to the limit is known to be right.

    Raises:
        UserError: rows are wrong (the first few are named), or there is none.
    """
    ids: list[str] = []
    problems: list[TaskProblem] = []
    for entry in reader.read(path):
        if isinstance(entry, TaskProblem):
            problems.append(entry)
            if len(problems) > _SHOWN_PROBLEMS:
                break
        else:
            ids.append(entry.task.task_id)
            if limit is not None and len(ids) >= limit:
                break
    if problems:
        shown = [f"{path}: {problem}" for problem in problems[:_SHOWN_PROBLEMS]]
        if len(problems) > 1:
            shown.append(f"check the whole file with: gym-cli data validate {path}")
        raise UserError("\n".join(shown))
    if not ids:
        raise UserError(f"{path}: holds no tasks")
    return ids


def _tasks(reader: TaskReader, path: Path) -> Iterator[rollout_pb2.Task]:
    for entry in reader.read(path):
        if isinstance(entry, TaskProblem):
            raise UserError(f"{path}: changed while it was being read: {entry}")
        yield entry.task


def _requested(ids: list[str], repeats: int, output: RunOutput) -> int:
    """How many rollouts the run is to have, those that only an earlier run asked for included."""
    asked = len(ids) * repeats
    kept = sum(output.has_outcome(task, repeat) for task in ids for repeat in range(repeats))
    return asked + output.outcomes - kept
