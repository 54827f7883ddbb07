"""Programs in a pod, started by the API's exec."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

import aiohttp

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.image_shell.programs import ScriptFailed
from gymmesh_sandbox.backends.kubernetes import frames, launch
from gymmesh_sandbox.backends.kubernetes.api import FAILURES, ApiError, KubernetesApi, shown
from gymmesh_sandbox.errors import sandbox_lost

_OPEN_S: Final = 20.0
_GONE: Final = frozenset((404, 409, 500))  # no such pod, or its container does not run


class ExecConnection:
    """A program that was started. One task reads, and one writes.

    Attributes:
        status: the message with the program's end, once it came.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self.status: bytes | None = None

    async def read(self) -> tuple[int, bytes] | None:
        """The next piece of output, by channel; None: there is no more."""
        while True:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                return None
            channel, data = frames.split_frame(message.data)
            if channel == frames.ERROR and data:
                self.status = data
            elif channel in (frames.STDOUT, frames.STDERR) and data:
                return channel, data

    async def send(self, data: bytes) -> None:
        """Writes to standard input. Raises ConnectionError once the connection has ended."""
        for frame in frames.stdin_frames(data):
            await self._send(frame)

    async def end_stdin(self) -> None:
        """Closes standard input. Raises ConnectionError once the connection has ended."""
        await self._send(frames.end_of_stdin())

    async def close(self) -> None:
        """Ends the connection; the program may go on."""
        with contextlib.suppress(*FAILURES, TimeoutError):
            async with asyncio.timeout(2):
                await self._socket.close()

    async def _send(self, frame: bytes) -> None:
        try:
            await self._socket.send_bytes(frame)
        except (aiohttp.ClientError, RuntimeError) as error:
            raise ConnectionResetError("the connection is closed") from error


class PodPrograms:
    """Starts programs in one pod: `image_shell.programs.Programs`."""

    def __init__(self, api: KubernetesApi, pod: str, sandbox_id: str) -> None:
        self._api = api
        self._pod = pod
        self._sandbox_id = sandbox_id

    async def start(self, script: bytes) -> ExecConnection:
        """Starts a script in a shell, which leaves standard input to it. Raises MeshError."""
        try:
            return await self._started(script)
        except FAILURES as error:
            raise exec_error(error, self._sandbox_id) from None

    async def run(
        self, argv: Sequence[str], stdin: bytes | None = None
    ) -> tuple[int, bytes, bytes]:
        return await self.feed(argv, () if stdin is None else (stdin,))

    async def feed(self, argv: Sequence[str], pieces: Iterable[bytes]) -> tuple[int, bytes, bytes]:
        """`run` with a standard input that comes in pieces."""
        connection = await self.start(launch.own_program(argv))
        feeding = asyncio.ensure_future(_feed(connection, pieces))
        stdout, stderr = bytearray(), bytearray()
        try:
            while (read := await connection.read()) is not None:
                channel, data = read
                (stdout if channel == frames.STDOUT else stderr).extend(data)
            return self._exit_code(connection), bytes(stdout), bytes(stderr)
        finally:
            feeding.cancel()
            await asyncio.wait((feeding,))
            await connection.close()

    async def output(self, argv: Sequence[str]) -> AsyncIterator[bytes]:
        connection = await self.start(launch.own_program(argv))
        try:
            while (read := await connection.read()) is not None:
                channel, data = read
                if channel == frames.STDOUT:
                    yield data
            if code := self._exit_code(connection):
                raise ScriptFailed(code, b"")
        finally:
            await connection.close()

    async def open_shell(self) -> PodShell:
        try:
            return PodShell(await self._started(launch.own_program(("/bin/sh",))))
        except FAILURES as error:
            raise ConnectionError(str(error)) from error

    async def _started(self, script: bytes) -> ExecConnection:
        async with asyncio.timeout(_OPEN_S):
            connection = ExecConnection(await self._api.exec(self._pod, launch.BOOT))
            try:
                await connection.send(launch.boot_line(script))
            except BaseException:
                await connection.close()
                raise
        return connection

    def _exit_code(self, connection: ExecConnection) -> int:
        if connection.status is None:
            raise sandbox_lost(self._sandbox_id, "the connection to its node broke")
        try:
            return frames.exit_code_of(connection.status)
        except frames.ExecRefused as error:
            raise sandbox_lost(self._sandbox_id, f"its node says: {shown(str(error))}") from None


class PodShell:
    """A shell in a pod: `image_shell.programs.ShellConnection`."""

    def __init__(self, connection: ExecConnection) -> None:
        self._connection = connection

    async def send(self, data: bytes) -> None:
        await self._connection.send(data)

    async def read(self) -> bytes | None:
        while (read := await self._connection.read()) is not None:
            channel, data = read
            if channel == frames.STDOUT:
                return data
        return None

    async def close(self) -> None:
        await self._connection.close()


def exec_error(error: BaseException, sandbox_id: str) -> MeshError:
    """What an exec that cannot be started means: SANDBOX_LOST, or NOT_PERMITTED where the service
    account may not start programs in pods.
    """
    if isinstance(error, ApiError) and error.status not in _GONE:
        if error.status in (401, 403):
            return MeshError(
                errors_pb2.ERROR_REASON_NOT_PERMITTED,
                "Kubernetes refuses to start programs in pods; the Role of the sandbox service"
                " needs 'create' and 'get' for 'pods/exec'.",
            )
        return MeshError(
            errors_pb2.ERROR_REASON_INTERNAL_FAULT,
            f"Kubernetes does not start a program in the pod ({error.status}):"
            f" {shown(error.message)}.",
            metadata={"sandbox_id": sandbox_id},
        )
    if isinstance(error, ApiError):
        return sandbox_lost(sandbox_id, "its container does not run")
    return sandbox_lost(sandbox_id, "its node cannot be reached")


async def _feed(connection: ExecConnection, pieces: Iterable[bytes]) -> None:
    """Sends all and closes standard input; what the program does not read is dropped."""
    with contextlib.suppress(ConnectionError):
        waiting = iter(pieces)
        while (piece := await asyncio.to_thread(next, waiting, None)) is not None:
            await connection.send(piece)
        await connection.end_stdin()
