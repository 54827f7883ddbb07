"""Sandboxes of the Docker backend as its tests start them, and programs in them."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gymmesh.sandbox.v1 import process_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends import (
    ProcessEnded,
    RunningProcess,
    SandboxSpec,
    Stream,
)
from gymmesh_sandbox.backends.docker import DockerBackend
from gymmesh_sandbox.backends.docker.sandbox import DockerSandbox
from tests.sandboxes.engines import IMAGE

_numbers = itertools.count()


def spec(**changes: Any) -> SandboxSpec:
    """A sandbox that asks for little."""
    number = next(_numbers)
    values: dict[str, Any] = {
        "sandbox_id": f"t{os.getpid()}-{number}",
        "instance_id": "tests",
        "root": IMAGE,
        "resources": sandbox_pb2.Resources(memory_bytes=256 << 20, pids=64, life_s=600),
        "network": sandbox_pb2.Network(none=sandbox_pb2.NoNetwork()),
    }
    return SandboxSpec(**(values | changes))


@asynccontextmanager
async def running(backend: DockerBackend, **changes: Any) -> AsyncIterator[DockerSandbox]:
    """A sandbox, ended afterwards."""
    sandbox = await backend.create(spec(**changes))
    try:
        yield sandbox
    finally:
        await sandbox.end()


def argv(*words: str | bytes, **values: Any) -> process_pb2.ProcessSpec:
    """A program and its arguments."""
    as_bytes = [one.encode() if isinstance(one, str) else one for one in words]
    return process_pb2.ProcessSpec(argv=process_pb2.Argv(words=as_bytes), **values)


def shell(line: str, **values: Any) -> process_pb2.ProcessSpec:
    """A line for the shell."""
    return process_pb2.ProcessSpec(shell=line, **values)


async def outcome(
    process: RunningProcess, stdin: bytes | None = b""
) -> tuple[ProcessEnded, bytes, bytes]:
    """How it ended, and what it wrote."""

    async def give() -> None:
        if stdin is not None:
            if stdin:
                await process.write(stdin)
            await process.close_stdin()

    giving = asyncio.ensure_future(give())
    written = {Stream.STDOUT: bytearray(), Stream.STDERR: bytearray()}
    async for stream, piece in process.output():
        written[stream] += piece
    ended = await process.wait()
    await giving
    return ended, bytes(written[Stream.STDOUT]), bytes(written[Stream.STDERR])


async def run(
    sandbox: DockerSandbox, process: process_pb2.ProcessSpec, stdin: bytes | None = b""
) -> tuple[ProcessEnded, bytes, bytes]:
    """Runs a program to its end."""
    return await outcome(await sandbox.start(process), stdin)


async def content(sandbox: DockerSandbox, path: bytes, *numbers: int) -> bytes:
    """What is in a file."""
    offset, most = numbers or (0, 0)
    return b"".join([piece async for piece in sandbox.read_file(path, offset, most, sandbox.user)])


def reason(error: pytest.ExceptionInfo[MeshError]) -> str:
    """Its name."""
    return error.value.reason_name
