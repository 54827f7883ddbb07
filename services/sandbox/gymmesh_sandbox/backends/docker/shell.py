"""The service's own programs in a container, started by the API's exec."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Final

from aiodocker.containers import DockerContainer
from aiodocker.execs import Exec
from aiodocker.stream import Stream as ExecStream

from gymmesh_sandbox.backends.docker.engine import FAILURES, container_error
from gymmesh_sandbox.backends.image_shell.programs import ScriptFailed

_SCRIPT_S: Final = 20.0
_STDOUT: Final = 1
# Neither the image nor the sandbox chooses what the scripts' programs print.
_ENVIRONMENT: Final = {"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin"}


class ContainerPrograms:
    """Starts programs in a container: `image_shell.programs.Programs`.

    Args:
        user: the programs' user, in the API's form.
    """

    def __init__(self, container: DockerContainer, sandbox_id: str, user: str = "0") -> None:
        self._container = container
        self._sandbox_id = sandbox_id
        self._user = user

    async def run(
        self, argv: Sequence[str], stdin: bytes | None = None
    ) -> tuple[int, bytes, bytes]:
        return await self.feed(argv, () if stdin is None else (stdin,))

    async def feed(self, argv: Sequence[str], pieces: Iterable[bytes]) -> tuple[int, bytes, bytes]:
        try:
            found = await self._exec(argv, stdin=pieces != ())
            stdout, stderr = bytearray(), bytearray()
            async with found.start() as stream:
                if pieces != ():
                    waiting = iter(pieces)
                    while (piece := await asyncio.to_thread(next, waiting, None)) is not None:
                        await send(stream, piece)
                    end_stdin(stream)
                while (message := await stream.read_out()) is not None:
                    (stdout if message.stream == _STDOUT else stderr).extend(message.data)
            return await exit_code(found), bytes(stdout), bytes(stderr)
        except FAILURES as error:
            raise container_error(error, self._sandbox_id) from None

    async def output(self, argv: Sequence[str]) -> AsyncIterator[bytes]:
        try:
            found = await self._exec(argv, stdin=False)
            async with found.start() as stream:
                while (message := await stream.read_out()) is not None:
                    if message.stream == _STDOUT:
                        yield message.data
            if code := await exit_code(found):
                raise ScriptFailed(code, b"")
        except FAILURES as error:
            raise container_error(error, self._sandbox_id) from None

    async def open_shell(self) -> ContainerShell:
        try:
            stream = (await self._exec(("/bin/sh",), stdin=True)).start()
            try:
                await stream.__aenter__()
            except BaseException:
                await close_stream(stream)
                raise
        except FAILURES as error:
            raise ConnectionError(str(error)) from error
        return ContainerShell(stream)

    async def _exec(self, argv: Sequence[str], *, stdin: bool) -> Exec:
        return await self._container.exec(
            list(argv), stdin=stdin, user=self._user, environment=_ENVIRONMENT, workdir="/"
        )


class ContainerShell:
    """A shell in a container: `image_shell.programs.ShellConnection`."""

    def __init__(self, stream: ExecStream) -> None:
        self._stream = stream

    async def send(self, data: bytes) -> None:
        with _as_os_error():
            await send(self._stream, data)

    async def read(self) -> bytes | None:
        with _as_os_error():
            while (message := await self._stream.read_out()) is not None:
                if message.stream == _STDOUT:
                    return message.data
        return None

    async def close(self) -> None:
        await close_stream(self._stream)


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except FAILURES as error:
        raise ConnectionError(str(error)) from error


async def exit_code(found: Exec, most_s: float | None = _SCRIPT_S) -> int:
    """The exit code of a process that has ended. Raises TimeoutError."""
    pause = 0.005
    async with asyncio.timeout(most_s):
        while (state := await found.inspect())["Running"] or state["ExitCode"] is None:
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.2)
    return int(state["ExitCode"])


def end_stdin(stream: ExecStream) -> None:
    """Closes the standard input of a process, and continues to read its output.

    aiodocker can only close both at once.
    """
    response = stream._resp
    if response is not None and response.connection is not None:
        transport = response.connection.transport
        if transport is not None and transport.can_write_eof():
            transport.write_eof()


async def close_stream(stream: ExecStream) -> None:
    """Closes the connection to a process, whatever its state is."""
    # aiodocker asserts that the daemon has not closed it before.
    with contextlib.suppress(*FAILURES, AssertionError):
        await stream.close()


async def send(stream: ExecStream, data: bytes) -> None:
    """Writes to the standard input of a process. Raises ConnectionError if the process has
    ended.
    """
    try:
        await stream.write_in(data)
    except (AssertionError, RuntimeError) as error:  # how aiodocker says that it is closed
        raise ConnectionResetError("the connection is closed") from error
