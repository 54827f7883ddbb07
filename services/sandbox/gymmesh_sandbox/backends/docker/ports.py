"""HTTP requests to a server in a container, through a process in the container."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from aiodocker.containers import DockerContainer
from aiodocker.stream import Stream as ExecStream

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.processes import write_to
from gymmesh_sandbox.backends.docker.engine import FAILURES, container_error
from gymmesh_sandbox.backends.docker.shell import end_stdin, exit_code, send
from gymmesh_sandbox.backends.image_shell import scripts
from gymmesh_sandbox.backends.port_calls import call_through, port_unreachable
from gymmesh_sandbox.errors import option_unsupported

_DEFAULT_S: Final = 60.0
_MILLISECONDS: Final = 1000
_PIECE_BYTES: Final = 1 << 16
_STDOUT: Final = 1


class _Bridge:
    """A Unix socket whose connections lead to a port of the container."""

    def __init__(self, container: DockerContainer, sandbox_id: str, port: int) -> None:
        self._container = container
        self._sandbox_id = sandbox_id
        self._port = port
        self.error: MeshError | None = None

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards one connection until one side ends it."""
        try:
            found = await self._container.exec(
                scripts.command(scripts.CONNECT, (b"%d" % self._port,)),
                stdin=True,
                user="0",
                workdir="/",
            )
            async with found.start() as stream:
                sending = asyncio.ensure_future(_send(reader, stream))
                try:
                    while (message := await stream.read_out()) is not None:
                        if message.stream == _STDOUT:
                            write_to(writer, message.data)
                            await writer.drain()
                finally:
                    sending.cancel()
            self.error = self._meaning(await exit_code(found))
        except ConnectionError:
            pass
        except (TimeoutError, *FAILURES) as error:
            self.error = container_error(error, self._sandbox_id)
        finally:
            writer.close()

    def _meaning(self, code: int) -> MeshError | None:
        if code == scripts.NO_CLIENT:
            return option_unsupported(
                "CallPort for an image that has neither python3 nor bash nor nc", "docker"
            )
        return port_unreachable(self._port) if code == scripts.UNREACHABLE else None


async def call_port(
    container: DockerContainer,
    sandbox_id: str,
    request: sandbox_pb2.CallPortRequest,
    max_bytes: int,
) -> sandbox_pb2.CallPortResponse:
    """Calls an HTTP server at the container's loopback address."""
    bridge = _Bridge(container, sandbox_id, request.port)
    seconds = request.timeout_ms / _MILLISECONDS if request.timeout_ms else _DEFAULT_S
    try:
        async with asyncio.timeout(seconds):
            return await call_through(bridge.connect, request, max_bytes)
    except TimeoutError:
        raise MeshError(
            errors_pb2.ERROR_REASON_DEADLINE_PASSED,
            f"The server at port {request.port} did not answer within {seconds:g} s.",
        ) from None
    except MeshError as error:
        if error.reason != errors_pb2.ERROR_REASON_SANDBOX_PORT_UNREACHABLE:
            raise
        raise (bridge.error or error) from error.__cause__


async def _send(reader: asyncio.StreamReader, stream: ExecStream) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(_PIECE_BYTES):
            await send(stream, piece)
        end_stdin(stream)
