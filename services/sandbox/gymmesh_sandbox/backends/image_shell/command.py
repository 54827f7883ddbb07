"""A program in a sandbox that a command of this machine starts, such as `ssh` or `podman exec`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, Self

from gymmesh_sandbox.backends.base import Stream
from gymmesh_sandbox.backends.image_shell.programs import ProgramLost

_PIECE_BYTES: Final = 1 << 16
_WAITING_PIECES: Final = 16
_CLOSE_S: Final = 2.0
_BY_SIGNAL: Final = 128


class CommandProgram:
    """A program with the input, output and exit code of a command: a `StartedProgram`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin = process.stdin
        self._pieces: asyncio.Queue[tuple[Stream, bytes] | None] = asyncio.Queue(_WAITING_PIECES)
        self._copying = [
            asyncio.ensure_future(self._copy(Stream.STDOUT, process.stdout)),
            asyncio.ensure_future(self._copy(Stream.STDERR, process.stderr)),
        ]
        self._open = len(self._copying)

    @classmethod
    async def start(cls, *command: str) -> Self:
        """Starts a command, in a session of its own. Raises OSError."""
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        )

    async def read(self) -> tuple[Stream, bytes] | None:
        while self._open:
            piece = await self._pieces.get()
            if piece is not None:
                return piece
            self._open -= 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._process.wait()
        return None

    async def send(self, data: bytes) -> None:
        try:
            self._stdin.write(data)
            await self._stdin.drain()
        except RuntimeError as error:  # of uvloop, for a pipe that is closed
            raise ConnectionResetError("the program no longer reads the input") from error

    async def end_stdin(self) -> None:
        self._stdin.close()

    async def close(self) -> None:
        for copying in self._copying:
            copying.cancel()
        await asyncio.wait(self._copying)
        self._stdin.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._process.wait()

    def exit_code(self) -> int:
        code = self._process.returncode
        if code is None:
            raise ProgramLost("the command of the process closed the output but kept running")
        return _BY_SIGNAL - code if code < 0 else code

    async def _copy(self, stream: Stream, reader: asyncio.StreamReader) -> None:
        while piece := await reader.read(_PIECE_BYTES):
            await self._pieces.put((stream, piece))
        await self._pieces.put(None)
