"""What a backend offers: programs that it starts in a sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Protocol

from gymmesh_sandbox.backends.base import Stream


class StartedProgram(Protocol):
    """A program that was started in a sandbox. One task reads, and one writes."""

    async def read(self) -> tuple[Stream, bytes] | None:
        """A piece of what it writes; None: it has ended, or the connection has."""

    async def send(self, data: bytes) -> None:
        """Writes to its standard input. Raises OSError where nobody reads it any more."""

    async def end_stdin(self) -> None:
        """Closes its standard input. Raises OSError where nobody reads it any more."""

    async def close(self) -> None:
        """Ends the connection; the program may go on. Raises nothing, and is bounded."""

    def exit_code(self) -> int:
        """Its exit code, once `read` has returned None; 128 and the number of a signal that ended
        it. Raises ProgramLost.
        """


class ProgramLost(Exception):
    """Nobody knows how a program ended; the text is the cause, a few words."""


class ShellConnection(Protocol):
    """A shell that reads from a connection. Methods raise OSError once it is broken."""

    async def send(self, data: bytes) -> None:
        """Writes to the shell's standard input."""

    async def read(self) -> bytes | None:
        """A piece of what it writes to its standard output; None: it has ended."""

    async def close(self) -> None:
        """Ends the connection, whatever became of it."""


class Programs(Protocol):
    """Starts programs in one sandbox. Methods raise MeshError where it is lost."""

    async def run(
        self, argv: Sequence[str], stdin: bytes | None = None
    ) -> tuple[int, bytes, bytes]:
        """Runs a program to its end: its exit code, standard output and standard error."""

    async def feed(self, argv: Sequence[str], pieces: Iterable[bytes]) -> tuple[int, bytes, bytes]:
        """`run` with a standard input that comes in pieces, each read in a thread."""

    def output(self, argv: Sequence[str]) -> AsyncIterator[bytes]:
        """The standard output of a program. Raises ScriptFailed where it ends with another code
        than 0.
        """

    async def open_shell(self) -> ShellConnection:
        """Starts `/bin/sh`. Raises OSError."""


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
