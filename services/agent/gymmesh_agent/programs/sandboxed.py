"""A program's run in a sandbox, from its home folder to its last leftover process."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from gymmesh_agent.programs.ends import ProgramEnd
from gymmesh_agent.programs.known_programs import find_program
from gymmesh_agent.programs.options import ProgramOptions
from gymmesh_agent.programs.output import OutputLog, OutputTail
from gymmesh_agent.programs.prepared import PreparedProgram, ProgramPlace, prepared
from gymmesh_runtime.errors import MeshError, field_invalid
from gymmesh_sandbox_access import ExecResult, ProcessHandle, SandboxHandle
from gymmesh_sandbox_access.leftovers import MARK, end_others, running

_SHORT_S: Final = 30.0
# What a program has to end by itself once its model calls are answered with errors.
_GRACE_S: Final = 10.0
_LOG_BYTES: Final = 64 << 20
_VERSION: Final = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")
# The first word of a Python package's console script is its interpreter.
_PACKAGE_VERSION: Final = """
python=$(head -n 1 "$(command -v "$1")" 2>/dev/null | sed -n 's/^#!//p')
"${python:-python3}" -c 'import importlib.metadata, sys
print(importlib.metadata.version(sys.argv[1]))' "$2"
"""
_HOME: Final = 'umask 077; mkdir -p "$1/tmp" && printf "%s\\n%s" "$PATH" "$PWD"'


class ProgramGateway(Protocol):
    """The part of a rollout's gateway that a program's run needs: the rollout's key, an event
    that is set when the rollout is over, and whether a model call is in progress.
    """

    key: str

    @property
    def stopped(self) -> asyncio.Event:
        """See Gateway."""

    @property
    def is_awaited(self) -> bool:
        """See Gateway."""


@dataclass(frozen=True, slots=True)
class ProgramTask:
    """A rollout's values for its program: the prompt, the gateway's address in the sandbox, and
    the rollout's name for the log.
    """

    prompt: str
    url: str
    name: str


async def run_in_sandbox(
    sandbox: SandboxHandle,
    options: ProgramOptions,
    task: ProgramTask,
    gateway: ProgramGateway,
    answers: Callable[[], int],
) -> ProgramEnd:
    """Runs the program to its end. When this returns, none of its processes runs any more.

    answers: returns how many model calls were answered so far. Raises MeshError if the sandbox is
    lost, or cannot run programs.
    """
    place = await _make_home(sandbox, options, task, gateway.key)
    program = prepared(options, place, tools=options.mcp)
    await _put_files(sandbox, options, program)
    mark = secrets.token_hex(8)
    before = await running(sandbox, user=options.user)
    log = OutputLog(
        Path(options.logs) if options.logs else None, task.name, gateway.key, _LOG_BYTES
    )
    tail = OutputTail(gateway.key)
    with log:
        process = await sandbox.start(
            program.command,
            timeout_s=options.timeout_s,
            cwd=place.workdir,
            env={**program.env, MARK: mark},
            user=options.user,
            output_bytes=options.output_bytes,
        )
        if program.stdin:
            await process.write(program.stdin)
        await process.close_stdin()
        result = await _followed(process, gateway.stopped, tail, log)
        awaited = gateway.is_awaited
    left = await end_others(sandbox, before, mark=mark, user=options.user)
    return ProgramEnd(
        cause=result.cause,
        exit_code=result.exit_code,
        signal=result.signal,
        output_tail=tail.kept,
        left=tuple(one.name for one in left),
        answers=answers(),
        awaited=awaited,
    )


async def program_version(sandbox: SandboxHandle, options: ProgramOptions) -> str:
    """The version that a known program reports; empty if it reports none. Raises MeshError of
    the sandbox.
    """
    if not options.program:
        return ""
    run = find_program(options.program).run
    home = f"/tmp/version-{secrets.token_hex(4)}"
    # Variables of the configuration that a rollout does not decide, such as a library's path.
    own = {name: value for name, value in options.env.items() if "{" not in value}
    env = {"HOME": home, "TMPDIR": f"{home}/tmp", **own}
    made = await _exec(sandbox, options, ["/bin/sh", "-c", _HOME, "home", home])
    if options.path:
        env["PATH"] = ":".join((*options.path, made.text.partition("\n")[0]))
    words = list(run.version)
    if run.package:
        words = ["/bin/sh", "-c", _PACKAGE_VERSION, "version", run.command[0], run.package]
    result = await sandbox.exec(words, timeout_s=_SHORT_S, env=env, user=options.user)
    await _exec(sandbox, options, ["rm", "-rf", home])
    found = _VERSION.search(result.text) if result.ok else None
    return found[0] if found else ""


async def _make_home(
    sandbox: SandboxHandle, options: ProgramOptions, task: ProgramTask, key: str
) -> ProgramPlace:
    home = f"/tmp/program-{secrets.token_hex(8)}"
    made = await _exec(
        sandbox, options, ["/bin/sh", "-c", _HOME, "home", home], cwd=options.workdir
    )
    path, _, workdir = made.text.partition("\n")
    return ProgramPlace(
        url=task.url, key=key, prompt=task.prompt, workdir=workdir, home=home, path=path
    )


async def _put_files(
    sandbox: SandboxHandle, options: ProgramOptions, program: PreparedProgram
) -> None:
    if program.folders:
        await _exec(sandbox, options, ["mkdir", "-p", *program.folders])
    if program.files:
        await sandbox.files.write_many(program.files, mode=0o600, user=options.user)


async def _exec(
    sandbox: SandboxHandle, options: ProgramOptions, words: list[str], cwd: str = ""
) -> ExecResult:
    """Runs a command that prepares the program. Raises FIELD_INVALID if the command fails."""
    result = await sandbox.exec(words, timeout_s=_SHORT_S, user=options.user, cwd=cwd)
    if not result.ok:
        said = result.error_text.strip()[-200:] or f"exit code {result.exit_code}"
        raise field_invalid("options", f"do not work in this sandbox: {said}")
    return result


async def _followed(
    process: ProcessHandle,
    stopped: asyncio.Event,
    tail: OutputTail,
    log: OutputLog,
) -> ExecResult:
    """Reads the program's output until it ends. When the rollout is over, the program has a
    moment to end on its own, and is then killed.
    """
    killer = asyncio.create_task(_kill_when(stopped, process))
    try:
        async with aclosing(process.output()) as pieces:
            async for name, data in pieces:
                tail.take(name, data)
                log.take(name, data)
        return await process.wait(timeout_s=_SHORT_S)
    finally:
        killer.cancel()
        await asyncio.wait((killer,))


async def _kill_when(stopped: asyncio.Event, process: ProcessHandle) -> None:
    await stopped.wait()
    await asyncio.sleep(_GRACE_S)
    # The output ends by itself where the sandbox is lost.
    with suppress(MeshError):
        await process.kill()
