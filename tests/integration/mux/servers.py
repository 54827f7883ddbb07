"""Servers with the mux and without it, and peers that write frames by hand."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.wire.mux.assembly import AssemblyBudget
from gymmesh_runtime.wire.mux.frames import (
    EXCHANGE,
)
from gymmesh_runtime.wire.mux.servicer import MuxServicer
from gymmesh_runtime.wire.mux.table import TableLimits
from gymmesh_runtime.wire.options import channel_options
from gymmesh_runtime.wire.server import MeshServer

REPOSITORY = Path(__file__).parents[3]
Reason = errors_pb2.ErrorReason


async def failure(awaitable: Any, timeout: float = 120.0) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await asyncio.wait_for(awaitable, timeout)
    return caught.value


class Asked(grpc.GenericRpcHandler):
    """Writes down what is asked for, and serves none of it."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    def service(self, handler_call_details: Any) -> None:
        self.methods.append(handler_call_details.method)


class Server:
    """A server whose streams can be counted. ``mux`` False: it does not offer the mux."""

    def __init__(
        self,
        servicers: Mapping[str, object],
        *,
        mux: bool = True,
        limits: TableLimits | None = None,
        budget: AssemblyBudget | None = None,
    ) -> None:
        bindings = [Binding(name, one) for name, one in servicers.items()]
        self.asked = Asked()
        self.mux = MuxServicer(bindings, limits, budget)
        self._plain = MeshServer(bindings, mux=False)
        server = self._plain._server  # what it serves is watched here, nothing else
        if mux:
            server.add_generic_rpc_handlers((self.mux.handler(),))
        server.add_generic_rpc_handlers((self.asked,))

    @asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator[str]:
        bound = await self._plain.start("127.0.0.1", port)
        try:
            yield f"127.0.0.1:{bound}"
        finally:
            await self._plain.stop(0)


@asynccontextmanager
async def exchange(address: str) -> AsyncIterator[Any]:
    """An Exchange stream on which a test writes and reads the bytes."""
    async with grpc.aio.insecure_channel(address, options=channel_options()) as channel:
        call: Any = channel.stream_stream(f"/{EXCHANGE}")()
        await call.wait_for_connection()
        try:
            yield call
        finally:
            call.cancel()


@asynccontextmanager
async def probe_process() -> AsyncIterator[tuple[Process, str]]:
    """The probe in a process of its own, and its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.unit.runtime.probe_service",
        json.dumps({"metrics_port": None}),
        stdout=asyncio.subprocess.PIPE,
        cwd=REPOSITORY,
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 240)
        yield process, line.decode().strip()
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.kill()
        await process.communicate()
