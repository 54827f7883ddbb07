"""The requests and answers of a sandbox: programs, limits, results.

Environments use only the interface `Sandbox`. Here bubblewrap implements it; a container service
could implement it, too.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

_MIB = 1024 * 1024


class SandboxError(RuntimeError):
    """The sandbox itself failed. This does not mean that the program is wrong."""


class SandboxUnavailable(SandboxError):
    """This machine can't run the sandbox; the text says in one sentence what to do."""


@dataclass(frozen=True, slots=True)
class Program:
    """What to run.

    `argv`: the command; `{python}` in it is replaced by the sandbox's Python interpreter.
    `files`: by plain name, put into the read-only folder `/app` before the start.
    `stdin`: what the program reads from its standard input.
    `waiting`: a command that can be started ahead of the program. It writes one byte to its
    standard output, waits for a line on its standard input, writes one more byte, and then does
    the same as `argv`, with `files`, which exist by then. Equal to `argv` for a program with
    trusted files that writes something first and then does nothing until it gets input. Empty
    for a program that cannot be started ahead.
    The program starts in `/tmp`, an empty folder of its own that it may write to.
    """

    argv: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use.

    wall_s: seconds from start to end. cpu_s: seconds of CPU for each of its processes.
    memory_bytes: address space of each process, and memory of all of them together where the
        machine's control groups can be used. processes: processes and threads at a time.
    file_bytes: the largest file. tmp_bytes: the size of `/tmp`, and of `/dev/shm`.
    open_files: of each process. output_bytes: of stdout and of stderr, each.
    """

    wall_s: float = 10.0
    cpu_s: int = 10
    memory_bytes: int = 512 * _MIB
    processes: int = 32
    file_bytes: int = 16 * _MIB
    tmp_bytes: int = 32 * _MIB
    open_files: int = 128
    output_bytes: int = 1 * _MIB


class Ending(enum.Enum):
    """How a program ended."""

    EXITED = "exited"
    """The program ended on its own. `Result.exit_code` says how."""
    TIMED_OUT = "timed out"
    """The program was killed after `Limits.wall_s`."""
    OUTPUT_LIMIT = "too much output"
    """The program was killed because it wrote more than `Limits.output_bytes`."""
    KILLED = "killed"
    """The program and its sandbox were killed because they used too much memory."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a program ended and what it wrote, at most `Limits.output_bytes` of each stream.

    `exit_code` is meant for EXITED: 128 + n when signal n ended it. `duration_s` counts from
    the request to the end of the last process.
    """

    ending: Ending
    exit_code: int
    stdout: bytes
    stderr: bytes
    duration_s: float

    @property
    def succeeded(self) -> bool:
        """Whether the program ended on its own with exit code 0."""
        return self.ending is Ending.EXITED and self.exit_code == 0


@dataclass(frozen=True, slots=True)
class ProgramThread:
    """A thread at one moment.

    Attributes:
        number: its id, on the whole machine.
        ready: whether it runs, or would if it had a processor.
        waited_s: seconds for which it was ready but had no processor, since it began.
        yields: whether it has asked for another share of a processor than it began with.
        ran_s: seconds of a processor that it has used since it began.
    """

    number: int
    ready: bool
    waited_s: float
    yields: bool
    ran_s: float = 0.0


class Running(Protocol):
    """A program that runs, with its standard streams."""

    async def write(self, data: bytes) -> None:
        """Write to the program's standard input. Data that the program doesn't read is dropped."""

    async def read_exactly(self, size: int) -> bytes:
        """Read from its standard output; raises `EOFError` when it ended before, and
        `SandboxError` when the sandbox did.
        """

    async def communicate(self, stdin: bytes) -> Result:
        """Write all input, close the input, and read all output."""

    def threads(self) -> list[ProgramThread]:
        """Its threads, all processes' together; empty where nothing is known of them.

        Takes milliseconds: not for an event loop.
        """

    def kill(self) -> None:
        """Kill all processes of the program."""


class Sandbox(Protocol):
    """A place where untrusted programs run, each in fresh surroundings."""

    async def open(self) -> None:
        """Prepare the sandbox. Raises `SandboxUnavailable`, in one sentence."""

    async def run(self, program: Program, limits: Limits) -> Result:
        """Run a program to its end. Raises `SandboxError` when the sandbox failed."""

    def start(self, program: Program, limits: Limits) -> AbstractAsyncContextManager[Running]:
        """Start a program and talk to it. After the block, all its processes have ended.

        `Limits.wall_s` is the caller's to keep here, and `Program.stdin` is not used.
        """

    async def close(self) -> None:
        """Kill what runs and free everything; harmless when called twice."""
