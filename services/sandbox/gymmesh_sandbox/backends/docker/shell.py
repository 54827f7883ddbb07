"""A shell of root in a container that runs short scripts, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Final

from aiodocker.containers import DockerContainer
from aiodocker.execs import Exec
from aiodocker.stream import Stream as ExecStream

from gymmesh_sandbox.backends.docker.engine import FAILURES, container_error
from gymmesh_sandbox.errors import sandbox_lost

_SCRIPT_S: Final = 20.0
_STDOUT: Final = 1
# Neither the image nor the sandbox chooses what the scripts' programs print.
_ENVIRONMENT: Final = {"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin"}


class ScriptFailed(Exception):
    """A script ended with an exit code that is not 0.

    Attributes:
        code: the exit code.
        output: what it wrote.
    """

    def __init__(self, code: int, output: bytes) -> None:
        super().__init__(f"exit code {code}")
        self.code = code
        self.output = output


class HelperShell:
    """A shell that stays, so that signals and short questions cost no new process.

    It is started with its container: later it may be that no further process can be.
    """

    def __init__(self, container: DockerContainer, sandbox_id: str) -> None:
        self._container = container
        self._sandbox_id = sandbox_id
        self._stream: ExecStream | None = None
        self._lock = asyncio.Lock()

    async def run(self, script: bytes) -> bytes:
        """Runs a script and returns what it wrote to its standard output.

        Raises ScriptFailed, and SANDBOX_LOST where no shell answers.
        """
        async with self._lock:
            fresh = self._stream is None
            try:
                return await self._run(script)
            except (TimeoutError, ConnectionError, *FAILURES):
                await self.close()
                if fresh:
                    raise sandbox_lost(self._sandbox_id, "its shell does not answer") from None
            # It was ended from inside; another one may still be had.
            try:
                return await self._run(script)
            except (TimeoutError, ConnectionError, *FAILURES):
                await self.close()
                raise sandbox_lost(self._sandbox_id, "its shell does not answer") from None

    async def close(self) -> None:
        """Ends the shell; the next `run` starts another one."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await close_stream(stream)

    async def _run(self, script: bytes) -> bytes:
        word = secrets.token_hex(16).encode()
        async with asyncio.timeout(_SCRIPT_S):
            if self._stream is None:
                self._stream = await self._open()
            # What a script before this one still writes, whose caller went away, is skipped.
            begin, end = word + b"(", word + b")"
            text = b"echo '%s'; { :\n%s\n} </dev/null 2>/dev/null\necho \"%s$?\"\n"
            await send(self._stream, text % (begin, script, end))
            said = b""
            while end not in said or not said.endswith(b"\n"):
                message = await self._stream.read_out()
                if message is None:
                    raise ConnectionError
                if message.stream == _STDOUT:
                    said += message.data
        output, _, code = said.partition(begin + b"\n")[2].rpartition(end)
        if int(code):
            raise ScriptFailed(int(code), output)
        return output

    async def _open(self) -> ExecStream:
        found = await self._container.exec(
            ["/bin/sh"], stdin=True, user="0", environment=_ENVIRONMENT, workdir="/"
        )
        stream = found.start()
        try:
            await stream.__aenter__()
        except BaseException:
            await close_stream(stream)
            raise
        return stream


async def run_command(
    container: DockerContainer, sandbox_id: str, argv: list[str], stdin: bytes | None = None
) -> tuple[int, bytes, bytes]:
    """Runs a program of root's in a container to its end.

    Returns its exit code, standard output and standard error. Raises SANDBOX_LOST.
    """
    try:
        found = await container.exec(
            argv, stdin=stdin is not None, user="0", environment=_ENVIRONMENT, workdir="/"
        )
        stdout, stderr = bytearray(), bytearray()
        async with found.start() as stream:
            if stdin is not None:
                await send(stream, stdin)
                end_stdin(stream)
            while (message := await stream.read_out()) is not None:
                (stdout if message.stream == _STDOUT else stderr).extend(message.data)
        return await exit_code(found), bytes(stdout), bytes(stderr)
    except FAILURES as error:
        raise container_error(error, sandbox_id) from None


async def exit_code(found: Exec, most_s: float | None = _SCRIPT_S) -> int:
    """The exit code of a process, once it has ended. Raises TimeoutError."""
    pause = 0.005
    async with asyncio.timeout(most_s):
        while (state := await found.inspect())["Running"] or state["ExitCode"] is None:
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.2)
    return int(state["ExitCode"])


def end_stdin(stream: ExecStream) -> None:
    """Closes the standard input of a process, and goes on reading what it writes.

    aiodocker only closes both at once.
    """
    response = stream._resp
    if response is not None and response.connection is not None:
        transport = response.connection.transport
        if transport is not None and transport.can_write_eof():
            transport.write_eof()


async def close_stream(stream: ExecStream) -> None:
    """Closes the connection to a process, whatever became of it."""
    # aiodocker asserts that the daemon has not closed it before.
    with contextlib.suppress(*FAILURES, AssertionError):
        await stream.close()


async def send(stream: ExecStream, data: bytes) -> None:
    """Writes to the standard input of a process. Raises ConnectionError once it has ended."""
    try:
        await stream.write_in(data)
    except (AssertionError, RuntimeError) as error:  # how aiodocker says that it is closed
        raise ConnectionResetError("the connection is closed") from error
