"""HTTP requests to a server in a pod, through the port forwarding of the API server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import aiohttp

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.processes import write_to
from gymmesh_sandbox.backends.kubernetes.api import FAILURES, KubernetesApi
from gymmesh_sandbox.backends.kubernetes.forwarded import (
    ForwardFailed,
    ForwardReader,
    data_frames,
)
from gymmesh_sandbox.backends.kubernetes.programs import connect_error
from gymmesh_sandbox.backends.port_calls import call_through

_PIECE_BYTES: Final = 1 << 16
_CLOSE_S: Final = 2.0


async def call_port(
    api: KubernetesApi,
    pod: str,
    sandbox_id: str,
    request: sandbox_pb2.CallPortRequest,
    max_bytes: int,
) -> sandbox_pb2.CallPortResponse:
    """Calls an HTTP server at the pod's loopback address. Raises MeshError."""
    bridge = _ForwardedPort(api, pod, sandbox_id, request.port)
    try:
        return await call_through(bridge.carry, request, max_bytes)
    except MeshError as error:
        if error.reason != errors_pb2.ERROR_REASON_SANDBOX_PORT_UNREACHABLE:
            raise
        raise (bridge.error or error) from error.__cause__


class _ForwardedPort:
    """Forwards a connection to a port of a pod.

    Attributes:
        error: why a connection could not be made; None if only nothing listens there.
    """

    def __init__(self, api: KubernetesApi, pod: str, sandbox_id: str, port: int) -> None:
        self._api = api
        self._pod = pod
        self._sandbox_id = sandbox_id
        self._port = port
        self.error: MeshError | None = None

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards one connection until one side ends it."""
        try:
            connection = await self._api.forward(self._pod, self._port)
        except FAILURES as error:
            self.error = connect_error(error, self._sandbox_id, "pods/portforward")
            writer.close()
            return
        sending = asyncio.ensure_future(_send(reader, connection))
        taken = ForwardReader()
        try:
            async for message in connection:
                if message.type is aiohttp.WSMsgType.BINARY:
                    write_to(writer, taken.take(message.data))
                    await writer.drain()
        except (ForwardFailed, OSError):
            pass  # nothing listens there, or one side has ended
        finally:
            writer.close()
            sending.cancel()
            await asyncio.wait((sending,))
            with contextlib.suppress(*FAILURES):
                async with asyncio.timeout(_CLOSE_S):
                    await connection.close()


async def _send(reader: asyncio.StreamReader, connection: aiohttp.ClientWebSocketResponse) -> None:
    with contextlib.suppress(aiohttp.ClientError, OSError, RuntimeError):
        while piece := await reader.read(_PIECE_BYTES):
            for frame in data_frames(piece):
                await connection.send_bytes(frame)
