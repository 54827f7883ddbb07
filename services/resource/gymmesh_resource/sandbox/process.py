"""A started program: its streams, its end, and the certainty that nothing of it is left.

Invariant: when `end` returns, its surroundings have ended and every pipe to the program is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Sequence
from typing import Final, Protocol

from gymmesh.sandbox.v1 import process_pb2
from gymmesh_resource.sandbox.program import (
    Ending,
    Limits,
    ProgramThread,
    Result,
    SandboxError,
)
from gymmesh_sandbox_local import OutputPipe, StartedProcess

#: After a SIGKILL the kernel takes milliseconds; for many large processes on a busy machine, more.
#: What runs out here is a failure that no program should be able to choose. Seconds.
DEATH_S: Final = 60.0
_CHUNK = 65_536


class Surroundings(Protocol):
    """What one program runs in, and ends with."""

    async def begin(self) -> StartedProcess:
        """Makes them and starts the program. Raises OSError and SandboxError."""

    @property
    def lost(self) -> bool:
        """Whether they ended, or begin to, with the program in them."""

    def threads(self, pid: int) -> Sequence[process_pb2.ThreadUsage]:
        """Those of all processes in them, of which the program's first has this id."""

    def kill(self) -> None:
        """Kills all processes in them."""

    async def end(self) -> None:
        """Kills all processes in them and waits for their ends; harmless when called twice."""

    def close(self) -> None:
        """Frees what they hold, after `end`, or when they were never made."""


class Process:
    """`Running`: a program that runs, alone in its surroundings."""

    def __init__(self, started: StartedProcess, limits: Limits, surroundings: Surroundings) -> None:
        self._started = started
        self._child = started.child
        self._stdout = started.stdout
        self._limits = limits
        self._surroundings = surroundings
        self._began = time.perf_counter()
        self._killed = False
        self._lost = False
        #: How it ended, as `communicate` found; None: not yet, or other code reads its output.
        self.ending: Ending | None = None
        self._child.status.add_done_callback(self._on_end)

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return not self._child.ended

    async def until_heard(self) -> bool:
        """Wait for its first output, and leave that there; False when it ended without any."""
        return await self._stdout.until_readable()

    def begin(self) -> None:
        """Start its time limit: it was started ahead, and is used from now on."""
        self._began = time.perf_counter()

    async def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            await self._started.stdin.write(data)

    async def read_exactly(self, size: int) -> bytes:
        try:
            return await self._stdout.read_exactly(size)
        except EOFError:
            self._check_spawner()
            raise

    async def communicate(self, stdin: bytes) -> Result:
        """Write all, close, and read to the end, within the limits.

        Raises `SandboxError` when its surroundings failed.
        """
        streams: list[bytearray] = [bytearray(), bytearray()]
        within = [True]
        timed_out = False
        try:
            async with asyncio.timeout(self._limits.wall_s):
                await asyncio.gather(
                    self._feed(stdin),
                    self._collect(self._stdout, streams[0], within),
                    self._collect(self._started.stderr, streams[1], within),
                    asyncio.wait((self._child.status,)),
                )
        except TimeoutError:
            timed_out = True
        await self.end()
        exit_code = self._exit_code()
        if not within[0]:
            self.ending = Ending.OUTPUT_LIMIT
        elif timed_out:
            self.ending = Ending.TIMED_OUT
        else:
            self.ending = Ending.KILLED if self._lost else Ending.EXITED
        duration = time.perf_counter() - self._began
        return Result(self.ending, exit_code, bytes(streams[0]), bytes(streams[1]), duration)

    def threads(self) -> list[ProgramThread]:
        """Its threads, all processes' together; takes milliseconds."""
        if not self.alive:
            return []
        return [
            ProgramThread(
                number=one.thread,
                ready=one.ready,
                waited_s=one.waited_us / 1e6,
                yields=one.yields,
                ran_s=one.ran_us / 1e6,
            )
            for one in self._surroundings.threads(self._child.pid)
        ]

    def kill(self) -> None:
        if self.alive:
            self._killed = True
            self._surroundings.kill()

    async def end(self) -> None:
        """Kill what is left, wait for it, close the pipes; harmless when called twice."""
        self.kill()
        try:
            async with asyncio.timeout(DEATH_S):
                await self._surroundings.end()
                await asyncio.wait((self._child.status,))
        except TimeoutError:
            raise SandboxError("A killed program did not end in time.") from None
        finally:
            self._started.close()

    def _exit_code(self) -> int:
        """As a shell says it: 128 and the signal that ended it. Raises SandboxError."""
        self._check_spawner()
        status = self._child.status.result()
        if os.WIFSIGNALED(status):
            return 128 + os.WTERMSIG(status)
        return os.waitstatus_to_exitcode(status)

    def _check_spawner(self) -> None:
        """Raises `SandboxError` where the program ended with what had started it."""
        if self._child.status.cancelled():
            raise SandboxError("The process that starts programs was killed.")

    def _on_end(self, status: asyncio.Future[int]) -> None:
        """Its end is the end of all that it left."""
        if not status.cancelled() and not self._killed:
            ended_by = os.WTERMSIG(status.result()) if os.WIFSIGNALED(status.result()) else 0
            self._lost = ended_by == signal.SIGKILL and self._surroundings.lost
        self._surroundings.kill()

    async def _feed(self, data: bytes) -> None:
        await self.write(data)
        with contextlib.suppress(OSError):
            self._started.stdin.close()

    async def _collect(self, stream: OutputPipe, into: bytearray, within: list[bool]) -> None:
        cap = self._limits.output_bytes
        while chunk := await stream.read(_CHUNK):
            room = cap - len(into)
            into += chunk[:room]
            if len(chunk) > room:
                within[0] = False
                self.kill()
                return
