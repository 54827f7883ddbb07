"""What the commands of `gym-cli sandbox` do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from gymmesh.sandbox.v1 import process_pb2, sandbox_pb2
from gymmesh_cli.options import MeshOptions
from gymmesh_cli.shared.interrupts import interrupting
from gymmesh_cli.terminal import ProgramOutput, echo, report
from gymmesh_mesh.sandboxes import (
    SCHEMES,
    ExecResult,
    KeptSandbox,
    SandboxClient,
    SandboxHandle,
    SandboxSpec,
    keep,
    kept,
    sandboxes_at,
    sandboxes_here,
    taken_up,
)
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.security import SecurityConfig

T = TypeVar("T")
_TIMED_OUT: Final = 124
_KILLED: Final = 137
_MOST_INPUT: Final = 32 << 20


def run(
    command: Sequence[str],
    address: str | None,
    security: SecurityConfig | None,
    mesh: MeshOptions,
    *,
    name: str,
    allow: Sequence[str],
    network: str,
    put: Sequence[str],
    keep: Path | None,
    image: str,
    cpus: float,
    memory_mb: int,
    disk_mb: int,
    ttl_s: int,
    **program: Any,
) -> int:
    """Runs a program in a new sandbox; its exit code."""
    spec = SandboxSpec(
        image=image,
        cpus=cpus,
        memory_mb=memory_mb,
        disk_mb=disk_mb,
        network=allow or ("open" if network == "open" else "none"),
        ttl_s=ttl_s,
    )
    try:
        spec.request("")
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if keep is not None and keep.exists():
        raise ConfigError(f"--keep {keep}: the file already exists. Choose a new file")
    copies = [_copy(one) for one in put]
    opening: AbstractAsyncContextManager[SandboxClient] = (
        sandboxes_here(mesh.load(), name) if address is None else _at(address, name, security)
    )

    async def work() -> int:
        async with opening as client:
            handle = await client.create(spec)
            for source, folder in copies:
                await handle.files.upload(source, folder)
            code = await _execute(handle, command, **program)
            if keep is not None:
                await _keep(handle, keep, address or "", name)
            return code

    return _finished(work())


def execute(
    command: Sequence[str], lease: Path, security: SecurityConfig | None, **program: Any
) -> int:
    """Runs a program in a kept sandbox; its exit code."""
    one = kept(lease)

    async def work() -> int:
        async with taken_up(one, security) as handle:
            return await _execute(handle, command, **program)

    return _finished(work())


def list_sandboxes(address: str, name: str, security: SecurityConfig | None, as_json: bool) -> None:
    """Reports the sandboxes of a service."""

    async def work() -> list[sandbox_pb2.SandboxInfo]:
        async with _at(address, name, security) as client:
            return await client.list()

    found = [_row(info) for info in _finished(work())]
    lines = [
        f"{one['sandbox_id']}  {one['image'] or '-'}  {one['network']}  "
        f"processes: {one['processes']}  {one['rollout_id'] or '-'}"
        for one in found
    ]
    report(as_json, found, lines or ["the service has no sandboxes"])


def remove(
    which: Sequence[str], address: str | None, name: str, security: SecurityConfig | None
) -> None:
    """Ends sandboxes by their leases or ids."""

    async def work() -> None:
        for one in which:
            file = Path(one)
            if file.is_file():
                async with taken_up(kept(file), security) as handle:
                    await handle.end()
                file.unlink()
            elif address is None:
                raise ConfigError(
                    f"{one!r} is not a lease file. To end a sandbox by its id, add "
                    "--address HOST:PORT"
                )
            else:
                async with _at(address, name, security) as client:
                    if not await client.remove(one):
                        raise ConfigError(
                            f"{address} has no sandbox {one!r}, and no lease file has this name. "
                            "List the sandboxes with: gym-cli sandbox ls"
                        )
            echo(f"ended {one}")

    _finished(work())


def _at(
    address: str, name: str, security: SecurityConfig | None
) -> AbstractAsyncContextManager[SandboxClient]:
    """The service at an address. Raises UsageError for a name that would mean nothing."""
    if name and not address.startswith(SCHEMES):
        raise click.UsageError(
            f"--name selects a service of a registry, but {address} is a single service; remove "
            "--name"
        )
    return sandboxes_at(address, name, security)


async def _keep(handle: SandboxHandle, file: Path, address: str, name: str) -> None:
    grant = await handle.grant("")
    grant.lease = await handle.renewed_lease()
    keep(file, KeptSandbox(address, name or grant.sandbox.service, grant))
    await handle.leave()
    echo(
        f"kept {grant.sandbox.sandbox_id}. Use the sandbox with: gym-cli sandbox exec {file} "
        "COMMAND",
        err=True,
    )


async def _execute(
    handle: SandboxHandle,
    command: Sequence[str],
    *,
    timeout_s: float,
    cwd: str,
    user: str,
    env: Sequence[str],
    reads: bool,
    as_json: bool,
) -> int:
    """Runs a program; shows what it writes as it comes, or all of it as JSON."""
    stdin = await asyncio.to_thread(_input) if reads else b""
    shown = ProgramOutput()
    result = await handle.exec(
        command[0] if len(command) == 1 else command,
        stdin=stdin,
        timeout_s=timeout_s,
        cwd=cwd,
        user=user,
        env=dict(_variable(one) for one in env),
        on_output=None if as_json else shown.write,
    )
    shown.close()
    ref = await handle.open()
    if as_json:
        report(True, _document(ref.sandbox_id, result), ())
    elif dropped := result.stdout_dropped + result.stderr_dropped:
        echo(
            (
                "gym-cli: the output exceeded the service's limit; bytes that were dropped: "
                f"{dropped}"
            ),
            err=True,
        )
    if result.timed_out:
        echo(
            f"gym-cli: the program exceeded the time limit of {timeout_s:g} s and was killed",
            err=True,
        )
    if result.out_of_memory:
        echo("gym-cli: the program exceeded the sandbox's memory limit and was killed", err=True)
    return _exit_code(result)


def _exit_code(result: ExecResult) -> int:
    if result.exit_code is not None:
        return result.exit_code
    if result.timed_out:
        return _TIMED_OUT
    return 128 + result.signal if result.signal else _KILLED


def _document(sandbox_id: str, result: ExecResult) -> dict[str, Any]:
    return {
        "sandbox_id": sandbox_id,
        "exit_code": result.exit_code,
        "cause": process_pb2.ExitCause.Name(result.cause).removeprefix("EXIT_CAUSE_"),
        "signal": result.signal,
        "stdout": result.text,
        "stderr": result.error_text,
        "dropped_bytes": result.stdout_dropped + result.stderr_dropped,
        "duration_s": result.duration_s,
    }


def _row(info: sandbox_pb2.SandboxInfo) -> dict[str, Any]:
    return {
        "sandbox_id": info.sandbox.sandbox_id,
        "instance_id": info.sandbox.instance_id,
        "image": info.sandbox.image,
        "network": sandbox_pb2.NetworkKind.Name(info.network).removeprefix("NETWORK_KIND_").lower(),
        "processes": info.processes,
        "rollout_id": info.rollout_id,
        "labels": dict(info.labels),
        "started_unix_s": info.started_unix_nano // 10**9,
        "expires_unix_s": info.expires_unix_nano // 10**9,
    }


def _copy(text: str) -> tuple[Path, str]:
    local, colon, folder = text.rpartition(":")
    if not colon or not local or not folder:
        raise click.UsageError(f"--put {text}: expected LOCAL:FOLDER")
    if not Path(local).exists():
        raise click.UsageError(f"--put {text}: {local} does not exist")
    return Path(local), folder


def _variable(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.UsageError(f"--env {text}: expected KEY=VALUE")
    return key, value


def _input() -> bytes:
    data = sys.stdin.buffer.read(_MOST_INPUT + 1)
    if len(data) > _MOST_INPUT:
        raise ConfigError(
            f"standard input exceeds {_MOST_INPUT >> 20} MiB; copy the data with --put instead"
        )
    return data


def _finished(work: Coroutine[Any, Any, T]) -> T:
    """What the work gives; Ctrl-C and SIGTERM let it end its sandbox first."""

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        stopped = False

        def stop() -> None:
            nonlocal stopped
            stopped = True
            task.cancel()

        with interrupting(stop):
            try:
                return await work
            except asyncio.CancelledError:
                if stopped:
                    raise KeyboardInterrupt from None
                raise

    return asyncio.run(main())
