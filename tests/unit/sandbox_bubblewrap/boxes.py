"""Real sandboxes of bubblewrap for the tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from gymmesh.sandbox.v1 import process_pb2, sandbox_pb2
from gymmesh_sandbox.backends.base import (
    ProcessEnded,
    RunningProcess,
    RunningSandbox,
    SandboxSpec,
    Stream,
)
from gymmesh_sandbox.backends.bubblewrap import BubblewrapBackend

INSTANCE = "boxes-0"


@asynccontextmanager
async def backend(folder: Path, **settings: object) -> AsyncGenerator[BubblewrapBackend]:
    """An open backend that keeps its files in a folder."""
    made = BubblewrapBackend({"folder": str(folder), **settings})
    await made.open()
    try:
        await made.end_leftovers(INSTANCE)
        yield made
    finally:
        await made.close()


def spec(name: str = "b-1", **fields: object) -> SandboxSpec:
    """A sandbox of the default image, without a network."""
    values: dict[str, object] = {
        "root": "host",
        "resources": sandbox_pb2.Resources(pids=64),
        "network": sandbox_pb2.Network(none=sandbox_pb2.NoNetwork()),
    }
    return SandboxSpec(sandbox_id=name, instance_id=INSTANCE, **{**values, **fields})  # type: ignore[arg-type]


@asynccontextmanager
async def box(made: BubblewrapBackend, **fields: object) -> AsyncGenerator[RunningSandbox]:
    """A sandbox that ends with the block."""
    sandbox = await made.create(spec(**fields))  # type: ignore[arg-type]
    try:
        yield sandbox
    finally:
        await sandbox.end()


async def collected(process: RunningProcess) -> tuple[ProcessEnded, bytes, bytes]:
    """How a process ended, what it wrote to its standard output, and to its standard error."""
    wrote = {Stream.STDOUT: b"", Stream.STDERR: b""}
    await process.close_stdin()
    async for stream, piece in process.output():
        wrote[stream] += piece
    return await process.wait(), wrote[Stream.STDOUT], wrote[Stream.STDERR]


async def shell(
    sandbox: RunningSandbox, line: str, **fields: object
) -> tuple[ProcessEnded, bytes, bytes]:
    """Runs a shell line to its end."""
    process = process_pb2.ProcessSpec(shell=line, **fields)  # type: ignore[arg-type]
    return await collected(await sandbox.start(process))
