"""The service's own programs in a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Final

from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.base import Stream
from gymmesh_sandbox.backends.image_shell import launch
from gymmesh_sandbox.backends.image_shell.programs import ProgramLost, ScriptFailed, StartedProgram
from gymmesh_sandbox.errors import sandbox_lost

_OPEN_S: Final = 20.0


class OwnPrograms:
    """Starts programs in one sandbox: `programs.Programs`.

    Args:
        start_program: starts a program; raises MeshError.
    """

    def __init__(
        self, start_program: Callable[[Sequence[str]], Awaitable[StartedProgram]], sandbox_id: str
    ) -> None:
        self._start_program = start_program
        self._sandbox_id = sandbox_id

    async def start(self, script: bytes) -> StartedProgram:
        """Starts a script in a shell, which leaves its standard input to the script. Raises
        MeshError.
        """
        try:
            async with asyncio.timeout(_OPEN_S):
                program = await self._start_program(launch.BOOT)
                try:
                    await program.send(launch.boot_line(script))
                except BaseException:
                    await program.close()
                    raise
        except OSError:  # a TimeoutError is one
            raise sandbox_lost(self._sandbox_id, "it can't start programs") from None
        return program

    async def run(
        self, argv: Sequence[str], stdin: bytes | None = None
    ) -> tuple[int, bytes, bytes]:
        return await self.feed(argv, () if stdin is None else (stdin,))

    async def feed(self, argv: Sequence[str], pieces: Iterable[bytes]) -> tuple[int, bytes, bytes]:
        """`run` with a standard input in pieces."""
        program = await self.start(launch.own_program(argv))
        feeding = asyncio.ensure_future(_feed(program, pieces))
        said = {Stream.STDOUT: bytearray(), Stream.STDERR: bytearray()}
        try:
            while (read := await program.read()) is not None:
                stream, data = read
                said[stream].extend(data)
            code = self._exit_code(program)
            return code, bytes(said[Stream.STDOUT]), bytes(said[Stream.STDERR])
        finally:
            feeding.cancel()
            await asyncio.wait((feeding,))
            await program.close()

    async def output(self, argv: Sequence[str]) -> AsyncIterator[bytes]:
        program = await self.start(launch.own_program(argv))
        try:
            while (read := await program.read()) is not None:
                stream, data = read
                if stream is Stream.STDOUT:
                    yield data
            if code := self._exit_code(program):
                raise ScriptFailed(code, b"")
        finally:
            await program.close()

    async def open_shell(self) -> OwnShell:
        try:
            return OwnShell(await self.start(launch.own_program(("/bin/sh",))))
        except MeshError as error:
            raise ConnectionError(str(error)) from error

    def _exit_code(self, program: StartedProgram) -> int:
        try:
            return program.exit_code()
        except ProgramLost as lost:
            raise sandbox_lost(self._sandbox_id, str(lost)) from None


class OwnShell:
    """A shell in a sandbox: `programs.ShellConnection`."""

    def __init__(self, program: StartedProgram) -> None:
        self._program = program

    async def send(self, data: bytes) -> None:
        await self._program.send(data)

    async def read(self) -> bytes | None:
        while (read := await self._program.read()) is not None:
            stream, data = read
            if stream is Stream.STDOUT:
                return data
        return None

    async def close(self) -> None:
        await self._program.close()


async def _feed(program: StartedProgram, pieces: Iterable[bytes]) -> None:
    """Sends all pieces and closes standard input; data that the program does not read is
    dropped.
    """
    with contextlib.suppress(OSError):
        waiting = iter(pieces)
        while (piece := await asyncio.to_thread(next, waiting, None)) is not None:
            await program.send(piece)
        await program.end_stdin()
