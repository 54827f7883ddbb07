"""What a backend provides: programs that it starts in a sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Protocol

from gymmesh_sandbox.backends.base import Stream


class StartedProgram(Protocol):
    """A program that was started in a sandbox. One task reads, and one writes."""

    async def read(self) -> tuple[Stream, bytes] | None:
        """A piece of the program's output; None: the program or the connection has ended."""

    async def send(self, data: bytes) -> None:
        """Writes to the program's standard input. Raises OSError if nobody reads it any more."""

    async def end_stdin(self) -> None:
        """Closes the program's standard input. Raises OSError if nobody reads it any more."""

    async def close(self) -> None:
        """Ends the connection in bounded time; the program may continue. Raises nothing."""

    def exit_code(self) -> int:
        """The program's exit code, after `read` has returned None: 128 plus the number of a
        signal that ended the program. Raises ProgramLost.
        """


class ProgramLost(Exception):
    """It is unknown how a program ended; the text is the cause in a few words."""


class ShellConnection(Protocol):
    """A shell that reads from a connection. Methods raise OSError if the connection is broken."""

    async def send(self, data: bytes) -> None:
        """Writes to the shell's standard input."""

    async def read(self) -> bytes | None:
        """A piece of the shell's standard output; None: the shell has ended."""

    async def close(self) -> None:
        """Ends the connection, whatever its state is."""


class Programs(Protocol):
    """Starts programs in one sandbox. Methods raise MeshError if the sandbox is lost."""

    async def run(
        self, argv: Sequence[str], stdin: bytes | None = None
    ) -> tuple[int, bytes, bytes]:
        """Runs a program to its end: its exit code, standard output and standard error."""

    async def feed(self, argv: Sequence[str], pieces: Iterable[bytes]) -> tuple[int, bytes, bytes]:
        """`run` with a standard input in pieces, each of which is read in a thread."""

    def output(self, argv: Sequence[str]) -> AsyncIterator[bytes]:
        """The standard output of a program. Raises ScriptFailed if the exit code is not 0."""

    async def open_shell(self) -> ShellConnection:
        """Starts `/bin/sh`. Raises OSError."""


class ScriptFailed(Exception):
    """A script ended with an exit code that is not 0.

    Attributes:
        code: the exit code.
        output: the script's output.
    """

    def __init__(self, code: int, output: bytes) -> None:
        super().__init__(f"exit code {code}")
        self.code = code
        self.output = output
