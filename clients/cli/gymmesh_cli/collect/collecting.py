"""What gym-cli collect does: choose the tasks, run them in a mesh, sum up."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gymmesh_cli.collect.earlier import Earlier, requested
from gymmesh_cli.collect.handing_over import hand_over
from gymmesh_cli.collect.progress import Progress
from gymmesh_cli.collect.resuming import resume_command
from gymmesh_cli.options import OutputOptions, StreamAddress, TrackOptions
from gymmesh_cli.shared.interrupts import interrupting
from gymmesh_cli.shared.session import MeshPlan
from gymmesh_cli.shared.task_choice import TaskChoice, choose_tasks, refuse_pipe
from gymmesh_cli.terminal import (
    DONE,
    INTERRUPTED,
    NOTHING_DONE,
    WITH_FAILURES,
    echo,
    echo_json,
    logged_to,
    one_line,
    say,
)
from gymmesh_client import (
    CollectOptions,
    Collector,
    OpenOptions,
    OutputFiles,
    RunIdentity,
    RunOutput,
    RunSummary,
    Tally,
    TaskReader,
    UserError,
    open_run,
    render,
    summarize,
)
from gymmesh_client.collector import KeptGroups, length_from, metrics
from gymmesh_client.control import CollectorRun, RunServer, StreamServer, stream_security
from gymmesh_client.output import check, make_folder_of
from gymmesh_client.problems import unwritable
from gymmesh_client.safe_writes import write_whole
from gymmesh_client.summary import summary_path, write_summary
from gymmesh_client.tasks import WHOLE, Shard, TaskFile
from gymmesh_mesh import Mesh
from gymmesh_mesh.service_descriptions import describe_services, environment_versions
from gymmesh_responses import dumps
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import SecurityConfig, check_exposure
from gymmesh_runtime.serving import MetricsEndpoint, heartbeat
from gymmesh_runtime.serving import run as run_loop
from gymmesh_runtime.telemetry import LogFormat
from gymmesh_runtime.text import os_reason
from gymmesh_runtime.timers import cancel_and_wait


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectCommand:
    """The user's request. All attributes except the plan are named like the parameters of the
    options.

    Attributes:
        tasks: the task file; None: the examples of the default environment.
        asked: the arguments that are stored for resuming.
        examples: the examples, as a task file, once they are known.
    """

    plan: MeshPlan
    tasks: Path | None
    asked: dict[str, Any]
    examples: bytes | None = None
    output: OutputOptions
    pace: CollectOptions
    stream_address: StreamAddress | None
    lengths: Path | None
    limit: int | None
    run_id: str
    shard: Shard | None
    skip_invalid: bool
    number_ids: bool
    refuse_other_agents: bool
    metrics_port: int | None
    track: TrackOptions | None
    no_control: bool
    quiet: bool
    log_format: LogFormat | None
    as_json: bool


def collect_tasks(command: CollectCommand) -> int:
    """Run the command and print its summary; the exit code. Raises UserError, ConfigError,
    MeshError.
    """
    if command.lengths is not None:
        with open_run(command.lengths) as run:
            length = length_from(run.rows())
        command = replace(command, pace=replace(command.pace, length=length))
    with ExitStack() as stack:
        if command.tasks is None:
            command = stack.enter_context(own_examples(command))
        if command.metrics_port is not None:
            stack.callback(_serve_metrics(command.metrics_port).stop)
        summary, interrupted = run_loop(_collect(command))
    output = str(command.output.files.rows)
    again = resume_command(output, summary.tally.failed, summary.not_finished)
    if command.as_json:
        echo_json(summary.to_dict())
        if again:
            echo(f"gym-cli: retry with: {one_line(again)}", err=True)
    else:
        echo(render(summary, again))
    if interrupted:
        return say("interrupted; all finished rows are on disk", INTERRUPTED)
    return exit_code(summary)


def _serve_metrics(port: int) -> MetricsEndpoint:
    """Serve this process's metrics. Raises UserError."""
    try:
        endpoint = MetricsEndpoint.start("127.0.0.1", port)
    except OSError as error:
        raise UserError(f"--metrics-port {port}: {os_reason(error)}. Choose another port") from None
    echo(f"gym-cli: metrics at http://{endpoint.address}/metrics", err=True)
    return endpoint


def exit_code(summary: RunSummary) -> int:
    """The exit code of a run that was not interrupted."""
    tally = summary.tally
    if summary.not_finished > 0:
        code = WITH_FAILURES if tally.completed else NOTHING_DONE
        why = summary.why or "some rollouts have no outcome"
        return say(f"ended early: {why}; resume with --resume", code)
    if not tally.completed and summary.requested:  # a shard may have no task at all
        first = one_line(tally.first_failure)
        first = f"; the first failure: {first}" if first else ""
        return say(f"no rollout completed{first}", NOTHING_DONE)
    missing = tally.failed or tally.group_faults or summary.skipped
    return WITH_FAILURES if missing else DONE


async def _collect(command: CollectCommand) -> tuple[RunSummary, bool]:
    plan, output = command.plan, command.output
    refuse_pipe(_tasks(command))
    _stream_security(command)
    identity = RunIdentity.of(_tasks(command), plan.identity())
    # A wrong row is said before the models are loaded.
    chosen = None if plan.agents else _choose(command, _reader(command))
    check(output.files, identity, _open_options(command))
    command = _keep_examples(command)
    log_format = command.log_format or plan.log_format
    with logged_to(output.files.log, anew=not output.resume, log_format=log_format):
        beating = asyncio.create_task(heartbeat())
        try:
            async with plan.open(command.pace.patience_s) as mesh:
                reader = _reader(command, mesh)
                if chosen is None:
                    chosen = _choose(command, reader)
                    _say_unused(plan.unused(mesh, chosen.agents))
                return await _collect_with(command, mesh, reader, chosen, identity)
        finally:
            await cancel_and_wait(beating)


@contextlib.contextmanager
def own_examples(command: CollectCommand) -> Iterator[CollectCommand]:
    """The command with the examples of its default environment as its task file. The file is
    temporary at first. Raises ConfigError and UsageError.
    """
    written = b"".join(dumps(row) + b"\n" for row in command.plan.examples())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / command.output.files.examples.name
        path.write_bytes(written)
        yield replace(command, tasks=path, examples=written)


def _keep_examples(command: CollectCommand) -> CollectCommand:
    """The command with its examples in a file of the run. Raises UserError where that file is
    there, holds other tasks and belongs to no run.
    """
    if command.examples is None:
        return command
    files = command.output.files
    make_folder_of(files)
    try:
        there = files.examples.read_bytes() if files.examples.exists() else command.examples
        if there != command.examples and not files.journal.exists():
            raise UserError(
                f"{files.examples} already exists and holds other tasks. Move this file, "
                "or choose another --output"
            )
        write_whole(files.examples, command.examples)
    except OSError as error:
        raise unwritable(files.examples, error) from None
    return replace(command, tasks=files.examples)


def _tasks(command: CollectCommand) -> Path:
    assert command.tasks is not None  # `own_examples` gave it one
    return command.tasks


def _reader(command: CollectCommand, mesh: Mesh | None = None) -> TaskReader:
    return replace(
        command.plan.reader(mesh),
        number_repeated_ids=command.number_ids,
        refuse_other_agents=command.refuse_other_agents,
    )


def _choose(command: CollectCommand, reader: TaskReader) -> TaskChoice:
    """The tasks to run; raises as `choose_tasks`. Says where they name other agents."""
    plan, own = command.plan, command.examples is not None
    chosen = choose_tasks(
        reader,
        _tasks(command),
        command.limit,
        checks=plan.checks(),
        skip_invalid=command.skip_invalid,
        # Examples are in a temporary file, which is gone when a message about it is read.
        shown_as=plan.examples_name if own else "",
        validate=plan.validate_examples if own else None,
    )
    if chosen.other_agents is not None:
        echo(f"gym-cli: {one_line(chosen.other_agents.said(_tasks(command)))}", err=True)
    return chosen


def _say_unused(agents: Iterable[str]) -> None:
    for agent in agents:
        said = (
            f"gym-cli: no task names agent {agent!r} of --agent, so this agent runs no rollouts. "
            f'Rows with the key "agent": "{agent}" run at this agent'
        )
        echo(one_line(said), err=True)


def _inputs(command: CollectCommand) -> dict[str, Iterable[Path]]:
    """The files that the run reads, by what they are to the user."""
    inputs: dict[str, Iterable[Path]] = dict(command.plan.inputs())
    if command.examples is None:
        inputs["--input"] = [_tasks(command)]
    # Rows that are gone on with may say how long tasks are.
    if command.lengths is not None and not command.output.resume:
        inputs["--longest-first-from"] = OutputFiles(command.lengths).everything()
    return inputs


async def _collect_with(
    command: CollectCommand,
    mesh: Mesh,
    reader: TaskReader,
    chosen: TaskChoice,
    identity: RunIdentity,
) -> tuple[RunSummary, bool]:
    options, tally = command.pace, Tally()
    shard = command.shard or WHOLE
    own = chosen.ids[shard.index :: shard.of]
    known = await environment_versions(mesh.directory, chosen.environments)
    identity = replace(identity, environments=known)
    async with AsyncExitStack() as stack:
        # An address that cannot be used is said before there is an output.
        server = await _stream_server(stack, command)
        earlier = Earlier(tally, set(own))
        output = _prepare(command, chosen, own, identity, earlier)
        kept_at = summary_path(output.files)
        kept_at.unlink(missing_ok=True)
        count = requested(own, options.repeats, output)
        tasks = TaskFile(reader, _tasks(command), command.limit, chosen.lines_skipped, shard)
        metrics.COLLECTOR_ROLLOUTS_REQUESTED.set(count)
        kept = await _kept_groups(stack, output, tasks, options)
        collector = Collector(
            partial(mesh.agents.connect, held=True),  # until `stored` says that it is on disk
            output,
            options,
            tally=tally,
            stored=mesh.agents.stored,
            load=mesh.agents.load,
            kept=kept,
        )
        started = time.monotonic()
        shown = output.files.shown
        run = CollectorRun(collector, requested=count, shown=shown, identity=identity, tasks=own)
        if not command.no_control:
            await _serve(stack, run, shown)
        if server is not None:
            server.add(run)
            echo(f"gym-cli: groups for trainers at {server.address}", err=True)
        stack.enter_context(interrupting(collector.interrupt))
        if not command.quiet:
            await stack.enter_async_context(Progress(count).shown(collector.figures))
        output.describe(
            configuration=command.plan.resolved(),
            options=options,
            tasks=_about_tasks(command, reader, chosen),
            seeds={"tasks_with_seed": chosen.seeded},
            counts={"requested": count},
        )
        tracking = None
        if command.track is not None:
            # Imported only where it is asked for.
            from gymmesh_cli.shared.tracking import tracked

            tracking = await stack.enter_async_context(tracked(command.track, output, collector))
        asking = asyncio.create_task(_say_services(mesh, output))
        # A disk that takes nothing more ends the run by itself.
        stack.push_async_callback(cancel_and_wait, asking)
        await collector.run(tasks)
        wall_s = time.monotonic() - started
        if options.hand_out:
            await hand_over(collector, shown)
        summary = _summary(collector, output, chosen, count, wall_s, len(earlier.tasks))
        _keep(kept_at, summary)
        if tracking is not None:
            tracking.sum_up(summary)
    return summary, collector.interrupted or collector.why in ("drained", "cancelled")


def _about_tasks(command: CollectCommand, reader: TaskReader, chosen: TaskChoice) -> dict[str, Any]:
    """What of the task file is run, and how its rows are read, for NAME.run.json."""
    return {
        "path": str(_tasks(command).absolute()),
        "count": len(chosen.ids),
        "limit": command.limit,
        "lines_skipped": sorted(chosen.lines_skipped),
        "number_repeated_ids": reader.number_repeated_ids,
        "environment": reader.defaults.environment,
        "agent": reader.defaults.agent,
    }


async def _say_services(mesh: Mesh, output: RunOutput) -> None:
    """Ask the mesh's services what they are, and say so in NAME.run.json."""
    output.describe(services=await describe_services(mesh.directory))


def _open_options(command: CollectCommand) -> OpenOptions:
    """How the output is opened, as far as the command says it."""
    output = command.output
    return OpenOptions(
        overwrite=output.overwrite,
        resume=output.resume,
        accept=output.accept,
        retry=output.retry,
        repeats=command.pace.repeats,
        inputs=_inputs(command),
        run_id=command.run_id,
        shard=command.shard,
        asked=command.asked,
        trace=output.trace,
    )


def _prepare(
    command: CollectCommand,
    chosen: TaskChoice,
    own: list[str],
    identity: RunIdentity,
    earlier: Earlier,
) -> RunOutput:
    """The output, with `earlier` counting the rows that are there already. `own`: the tasks of this
    shard.
    """
    asked = command.output
    chosen.refuse_unknown(asked.retry.tasks if asked.retry else (), _tasks(command))
    options = replace(
        _open_options(command), retry_of=own, skipped=chosen.skipped, tasks=len(chosen.ids)
    )
    output = RunOutput.open(
        asked.files,
        identity,
        options,
        on_row=earlier.add_row,
        on_failure=earlier.add_failure,
    )
    for notice in output.notices:
        echo(f"gym-cli: {one_line(notice)}", err=True)
    if output.not_retried:
        echo(
            (
                "gym-cli: rollouts that match --retry but are outside --num-repeats and "
                f"--limit: {output.not_retried}. The command does not run these rollouts "
                "again, and keeps their outcomes"
            ),
            err=True,
        )
    return output


def _summary(
    collector: Collector,
    output: RunOutput,
    chosen: TaskChoice,
    requested: int,
    wall_s: float,
    tasks: int,
) -> RunSummary:
    options = collector.options
    return summarize(
        collector.tally,
        requested=requested,
        wall_s=wall_s,
        repeats=options.repeats,
        tasks=tasks,
        output=output.files.shown,
        failures_output=str(output.files.failures),
        run_id=output.run_id,
        why=collector.why,
        concurrency=collector.figures().concurrency,
        groups=collector.group_stream.store.counts() if options.hand_out else None,
        skipped=len(chosen.lines_skipped),
        skipped_output=str(output.files.skipped),
    )


async def _serve(stack: AsyncExitStack, run: CollectorRun, shown: str) -> None:
    """Serve the run to this user's other terminals; that it cannot be is no reason to stop."""
    try:
        server = await stack.enter_async_context(RunServer())
        server.add(run, shown)
    except (OSError, MeshError) as error:
        echo(f"gym-cli: `gym-cli runs` can't find this run: {error}", err=True)


def _stream_security(command: CollectCommand) -> SecurityConfig | None:
    """The security of --stream-listen; None: it is not given. Raises ConfigError where strangers
    could read the groups.
    """
    at = command.stream_address
    if at is None:
        return None
    security = stream_security(command.plan.security, at.token_file)
    check_exposure(at.host, security)
    return security


async def _stream_server(stack: AsyncExitStack, command: CollectCommand) -> StreamServer | None:
    """The server where --stream-listen says, without a run yet; None: it is not given. Raises
    UserError and ConfigError.
    """
    at, security = command.stream_address, _stream_security(command)
    if at is None or security is None:
        return None
    server = StreamServer(at.host, at.port, security)
    try:
        return await stack.enter_async_context(server)
    except OSError as error:
        raise UserError(f"--stream-listen: {error}. Choose another address") from None


async def _kept_groups(
    stack: AsyncExitStack, output: RunOutput, tasks: TaskFile, options: CollectOptions
) -> KeptGroups | None:
    """The notes of which groups trainers have; None: this run hands out none."""
    if not options.hand_out:
        output.files.groups.unlink(missing_ok=True)  # it does not say what ends from now on
        return None
    kept = await asyncio.to_thread(KeptGroups.opened, output, tasks, options.repeats)
    stack.push_async_callback(kept.log.close)
    if kept.unsent:
        echo(
            f"gym-cli: {output.files.groups} is missing, so groups that already have rows "
            f"are not sent to a trainer; number of these groups: {kept.unsent}",
            err=True,
        )
    return kept


def _keep(path: Path, summary: RunSummary) -> None:
    try:
        write_summary(path, summary)
    except OSError as error:
        echo(f"gym-cli: {unwritable(path, error)}", err=True)
