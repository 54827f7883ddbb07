"""What gym-cli reverify does: find the environments, judge, compare, sum up."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import hashlib
import json
import shlex
import socket
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from google.protobuf import json_format

from gymmesh_cli.options import MeshOptions, SecurityOptions
from gymmesh_cli.shared.interrupts import interrupting
from gymmesh_cli.shared.session import MeshPlan
from gymmesh_cli.terminal import (
    DONE,
    INTERRUPTED,
    NOTHING_DONE,
    WITH_FAILURES,
    logged_to,
    one_line,
    report,
    say,
)
from gymmesh_client import (
    OpenOptions,
    OutputFiles,
    RetryChoice,
    RunIdentity,
    RunOutput,
    TaskDefaults,
    TaskReader,
    UserError,
)
from gymmesh_client.log import latest_session
from gymmesh_client.log_records import is_run_id
from gymmesh_client.output import check
from gymmesh_client.problems import unreadable
from gymmesh_client.run_file import (
    EnvironmentVersion,
    Versions,
    version_changes,
    versions,
)
from gymmesh_client.safe_writes import refuse_inputs
from gymmesh_data.reverify import (
    Reverification,
    ReverifyOptions,
    Source,
    TaskSource,
    VerdictChanges,
    Verifiers,
    count_kept,
)
from gymmesh_mesh.uses import one_use
from gymmesh_mesh.verifying import embedded_environments, judged_by, remote_environments
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serving import run as run_loop

_NO_VERSIONS: Final[Versions] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReverifyCommand:
    """What the user asked for; the fields are named as the parameters of the command's options."""

    inputs: tuple[Path, ...]
    output: Path | None
    mesh: MeshOptions
    resources: tuple[str, ...]
    security: SecurityOptions
    environments: tuple[str, ...]
    tasks_file: Path | None
    verifier: str
    on_difference: str
    limit: int | None
    concurrency: int
    timeout_s: float
    overwrite: bool
    resume: bool
    as_json: bool


def reverify_rollouts(command: ReverifyCommand) -> int:
    """Run the command and print the comparison; the exit code. Raises UserError, ConfigError,
    MeshError.
    """
    plan = MeshPlan.of(command.mesh, ())
    named = {"the reverification": list(command.inputs), **plan.inputs()}
    if command.tasks_file is not None:
        named["--tasks"] = [command.tasks_file]
    source = Source(command.inputs, frozenset(command.environments), command.mesh.environment or "")
    if command.output is not None:
        own = OutputFiles(command.output).everything()
        refuse_inputs(own, named | {"the reverification": source.files()})
    names = source.names()
    if not names:
        failed = (f"\n{one['count']} {_why_not(one)}" for one in _not_judged(source))
        return say("".join(["no completed rollouts to score", *failed]), NOTHING_DONE)
    changes, judges, interrupted = run_loop(_reverify(command, plan, source, names))
    # The first rollouts are among those that completed.
    not_judged = _not_judged(source, judges) if command.limit is None else []
    _report(changes, command, not_judged)
    if interrupted:
        return say("interrupted; resume with --resume", INTERRUPTED)
    if not changes.judged:
        first = one_line(changes.first_failure)
        return say(
            f"no rollout was judged{f'; the first failure: {first}' if first else ''}", NOTHING_DONE
        )
    return WITH_FAILURES if changes.failed or changes.skipped or not_judged else DONE


async def _reverify(
    command: ReverifyCommand, plan: MeshPlan, source: Source, names: frozenset[str]
) -> tuple[VerdictChanges, Versions, bool]:
    """The verdicts, the versions of the environments that gave them, and whether Ctrl-C came."""
    changes, output, tasks = VerdictChanges(), None, None
    async with AsyncExitStack() as stack:
        if command.output is not None:
            log = OutputFiles(command.output).log
            stack.enter_context(logged_to(log, anew=not command.resume))
        directory = await stack.enter_async_context(_environments(command, plan, source, names))
        own = one_use(command.verifier) if command.verifier else ""
        verifiers = Verifiers(directory, command.timeout_s, own)
        await verifiers.prepare(names)
        if command.output is not None:
            output = _prepare(command, command.output, plan, source, verifiers, changes)
        if command.tasks_file is not None:
            tasks = TaskSource(command.tasks_file, TaskReader(TaskDefaults("any", "any")))
        differing = command.on_difference == "judge"
        options = ReverifyOptions(command.concurrency, command.limit, _who(), tasks, differing)
        judging = Reverification(source, verifiers, output, options, changes)
        stack.push_async_callback(judging.close)
        with _interrupts_of(judging):
            await judging.run()
        # The versions of another verifier say nothing about the run's environments.
        judges = {} if command.verifier else _versions(verifiers)
        return changes, judges, judging.stopped


def _versions(verifiers: Verifiers) -> Versions:
    return {
        name: frozenset({EnvironmentVersion.of(about)}) for name, about in verifiers.about.items()
    }


def _environments(
    command: ReverifyCommand, plan: MeshPlan, source: Source, names: frozenset[str]
) -> AbstractAsyncContextManager[PeerDirectory]:
    assert plan.config is not None  # a plan without agents has one
    if command.verifier:
        return embedded_environments(judged_by(plan.config, names, command.verifier), names)
    if not command.resources:
        return embedded_environments(plan.config, names, known=source.uses())
    security = command.security.over(plan.config.security)
    return remote_environments(command.resources, plan.config, security=security)


def _prepare(
    command: ReverifyCommand,
    path: Path,
    plan: MeshPlan,
    source: Source,
    verifiers: Verifiers,
    changes: VerdictChanges,
) -> RunOutput:
    """The output, with `changes` counting the verdicts that are there already."""
    files = OutputFiles(path)
    identity = _identity(command, plan, source, verifiers)
    if not command.overwrite:
        _refuse_others(files, identity, resume=command.resume)
    accept = ("version",)
    asked = OpenOptions(overwrite=command.overwrite, resume=command.resume, accept=accept)
    check(files, identity, asked)
    if command.overwrite:
        for path in files.everything():  # all of them a run's, as `check` has seen
            path.unlink(missing_ok=True)
    run_id, repeats = source.run()
    output = RunOutput.open(
        files,
        identity,
        OpenOptions(
            resume=command.resume,
            accept=accept,
            retry=RetryChoice(failed=True),
            repeats=repeats,
            # The rows keep their ids, so that they are found by task and repeat as in the run.
            run_id=run_id if is_run_id(run_id) else "",
        ),
        on_row=partial(count_kept, changes),
    )
    output.describe(
        reverified={"from": [str(path.absolute()) for path in command.inputs], "by": _who()},
        configuration={} if command.resources else plan.resolved(),
        options={
            "environments": sorted(command.environments),
            "tasks": None if command.tasks_file is None else str(command.tasks_file.absolute()),
            "limit": command.limit,
            "resources": list(command.resources),
            "verifier": command.verifier,
            "timeout_s": command.timeout_s,
        },
        services={
            "environments": {
                name: [json_format.MessageToDict(one, preserving_proto_field_name=True)]
                for name, one in verifiers.about.items()
            }
        },
    )
    return output


def _refuse_others(files: OutputFiles, identity: RunIdentity, *, resume: bool) -> None:
    """Refuse an output with verdicts on other rollouts, or by others. Raises UserError."""
    written = any(one.exists() and one.stat().st_size for one in (files.rows, files.failures))
    session = latest_session(files) if resume or written else None
    if session is None:
        return
    what = {
        "tasks": "different rollouts or tasks",
        "config": "different environments, or different options or versions of the environments",
    }
    changed = [
        what[name] for name in identity.changes(RunIdentity.of_session(session)) if name in what
    ]
    if changed and not resume:
        raise UserError(
            f"{files.shown} already exists, and was started with {' and '.join(changed)}. Replace "
            "it with --overwrite, or choose another --output"
        )
    if changed:
        raise UserError(
            f"{files.shown} was started with {' and '.join(changed)}, so --resume would mix "
            "incompatible verdicts. Start again with --overwrite, or choose another --output"
        )


def _identity(
    command: ReverifyCommand, plan: MeshPlan, source: Source, verifiers: Verifiers
) -> RunIdentity:
    """What a resumption must have the same: the rollouts, the tasks, and the judge."""
    tasks = hashlib.sha256(source.digest().encode())
    if command.tasks_file is not None:
        try:
            tasks.update(command.tasks_file.read_bytes())
        except OSError as error:
            raise unreadable(command.tasks_file, error) from None
    said: dict[str, Any] = {
        "environments": {
            name: (plan.identity().get("environments") or {}).get(name)
            for name in verifiers.about
            if not (command.resources or command.verifier)
        },
        "verifier": command.verifier,
        "versions": {
            name: [one.version, one.verifier_version, one.source_digest.hex()]
            for name, one in verifiers.about.items()
        },
        "only": sorted(command.environments),
        "limit": command.limit,
    }
    config = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
    return RunIdentity(tasks.hexdigest(), config.hexdigest(), versions().get("gymmesh", ""))


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "unknown"
    return f"gym-cli reverify {versions().get('gymmesh', '')}, {user}@{socket.gethostname()}"


@contextmanager
def _interrupts_of(judging: Reverification) -> Iterator[None]:
    """While open, Ctrl-C and SIGTERM let verdicts under way end; a second one cancels them."""
    task = asyncio.current_task()
    assert task is not None

    def interrupt() -> None:
        if judging.stopped:
            task.cancel()
        judging.stopped = True

    with interrupting(interrupt), contextlib.suppress(asyncio.CancelledError):
        yield


def _not_judged(source: Source, judges: Versions = _NO_VERSIONS) -> list[dict[str, Any]]:
    """The failed rollouts of the source's runs: counts by boundary, and how to run them again.

    judges: the versions of the environments as they are now, where they are known.
    """
    found: list[dict[str, Any]] = []
    for run, counts in source.failed().items():
        session = latest_session(OutputFiles(run)) or {}
        was = RunIdentity.of_session(session).environments
        for boundary, count in sorted(counts.items()):
            again = ["gym-cli", "collect", "--resume", "--output", str(run)]
            again += ["--retry", f"boundary={boundary}" if boundary else "failed"]
            if version_changes(was, judges):
                again += ["--accept-change", "environments"]
            # `collect` can run a rollout again only in a run of its own, which has arguments.
            retry = shlex.join(again) if session.get("asked") else None
            found.append({"run": str(run), "boundary": boundary, "count": count, "retry": retry})
    return found


def _why_not(one: dict[str, Any]) -> str:
    retry = one["retry"]
    return f"failed at {one['boundary'] or 'an unknown boundary'}" + (
        f"; rerun with: {retry}" if retry else ""
    )


def _report(
    changes: VerdictChanges, command: ReverifyCommand, not_judged: list[dict[str, Any]]
) -> None:
    shown = None if command.output is None else str(command.output)
    lines = changes.table()
    if changes.kept:
        lines.append(f"kept          verdicts of an earlier session: {changes.kept}")
    lines += [f"skipped       {why}: {count}" for why, count in sorted(changes.left_out.items())]
    lines += [f"not judged    {one['count']} {_why_not(one)}" for one in not_judged]
    lines += [f"failed        {count} {why}" for why, count in sorted(changes.causes.items())]
    if command.output is not None:
        lines.append(f"rows          {command.output}")
        if changes.failed:
            lines.append(f"failures      {OutputFiles(command.output).failures}")
    document = changes.to_dict() | {"not_judged": not_judged, "output": shown}
    report(command.as_json, document, lines)
