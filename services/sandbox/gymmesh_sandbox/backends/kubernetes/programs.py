"""Programs in a pod, started by the API's exec."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

import aiohttp

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.base import Stream
from gymmesh_sandbox.backends.image_shell.programs import ProgramLost
from gymmesh_sandbox.backends.kubernetes import frames
from gymmesh_sandbox.backends.kubernetes.api import FAILURES, ApiError, KubernetesApi, shown
from gymmesh_sandbox.errors import sandbox_lost

_GONE: Final = frozenset((404, 409, 500))  # no such pod, or the sandbox's container is not running
_STREAMS: Final[Mapping[int, Stream]] = {
    frames.STDOUT: Stream.STDOUT,
    frames.STDERR: Stream.STDERR,
}


class PodProgram:
    """A program that was started in a pod: `image_shell.programs.StartedProgram`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._status: bytes | None = None

    async def read(self) -> tuple[Stream, bytes] | None:
        while True:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                return None
            channel, data = frames.split_frame(message.data)
            if channel == frames.ERROR and data:
                self._status = data
            elif channel in _STREAMS and data:
                return _STREAMS[channel], data

    async def send(self, data: bytes) -> None:
        for frame in frames.stdin_frames(data):
            await self._send(frame)

    async def end_stdin(self) -> None:
        await self._send(frames.end_of_stdin())

    async def close(self) -> None:
        with contextlib.suppress(*FAILURES, TimeoutError):
            async with asyncio.timeout(2):
                await self._socket.close()

    def exit_code(self) -> int:
        if self._status is None:
            raise ProgramLost("the connection to the sandbox's node broke")
        try:
            return frames.exit_code_of(self._status)
        except frames.ExecRefused as error:
            raise ProgramLost(f"the sandbox's node says: {shown(str(error))}") from None

    async def _send(self, frame: bytes) -> None:
        try:
            await self._socket.send_bytes(frame)
        except (aiohttp.ClientError, RuntimeError) as error:
            raise ConnectionResetError("the connection is closed") from error


async def start_in_pod(
    api: KubernetesApi, pod: str, container: str, sandbox_id: str, argv: Sequence[str]
) -> PodProgram:
    """Starts a program in a container of a pod. Raises MeshError."""
    try:
        return PodProgram(await api.exec(pod, container, argv))
    except FAILURES as error:
        raise connect_error(error, sandbox_id, "pods/exec") from None


def connect_error(error: BaseException, sandbox_id: str, resource: str) -> MeshError:
    """The error if a pod can't be connected to: SANDBOX_LOST, or NOT_PERMITTED if the service
    account lacks the permission.

    Args:
        resource: the pod's subresource, as named in a Role.
    """
    if isinstance(error, ApiError) and error.status not in _GONE:
        if error.status in (401, 403):
            return MeshError(
                errors_pb2.ERROR_REASON_NOT_PERMITTED,
                f"Kubernetes does not permit {resource}; the Role of the sandbox service needs "
                f"the verbs 'create' and 'get' for '{resource}'.",
            )
        return MeshError(
            errors_pb2.ERROR_REASON_INTERNAL_FAULT,
            f"Kubernetes could not connect to the pod ({error.status}): {shown(error.message)}.",
            metadata={"sandbox_id": sandbox_id},
        )
    if isinstance(error, ApiError):
        return sandbox_lost(sandbox_id, "the sandbox's container is not running")
    return sandbox_lost(sandbox_id, "the sandbox's node is unreachable")
