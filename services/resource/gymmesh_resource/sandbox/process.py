"""A started program: its pipes, its end, and the certainty that nothing of it is left.

Invariant: when `ended` returns, the launcher is reaped and every pipe to the program is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import time

from gymmesh_resource.sandbox.pipes import PipeReader, PipeWriter
from gymmesh_resource.sandbox.program import Ending, Limits, Result, SandboxError
from gymmesh_resource.sandbox.threads import ProgramThread, threads_of

# After a SIGKILL the kernel takes milliseconds; many large processes on a busy machine take longer.
# What runs out here is a failure that no program should be able to choose.
_DEATH_S = 60.0
_CHUNK = 65_536


class LauncherStatus:
    """What the launcher writes: JSON documents with the program's process id and exit code."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._written = b""

    def failed(self) -> bool:
        """Whether the launcher ended without having run the program."""
        return self._descriptor >= 0 and b'"exit-code"' not in self._read()

    def kill(self, launcher: subprocess.Popen[bytes]) -> None:
        """Kill the program's first process, and the launcher only where that is not there yet.

        The launcher then sees the end and buries its child. Were it killed itself, the child
        would die too, but be left to the machine's first process to bury.
        """
        child = re.search(rb'"child-pid": *([0-9]+)', self._read())
        with contextlib.suppress(ProcessLookupError):
            if child and b'"exit-code"' not in self._written:
                os.kill(int(child[1]), signal.SIGKILL)
            elif not child:
                os.killpg(launcher.pid, signal.SIGKILL)

    def _read(self) -> bytes:
        if self._descriptor >= 0:
            with contextlib.suppress(BlockingIOError):
                self._written += os.read(self._descriptor, 4096)
        return self._written


class Process:
    """`Running`: a program that runs. `status`: what its launcher writes of it."""

    def __init__(
        self, popen: subprocess.Popen[bytes], limits: Limits, status: LauncherStatus
    ) -> None:
        self._popen = popen
        self._limits = limits
        self._status = status
        self._started = time.perf_counter()
        self.pid = popen.pid
        self._exited = asyncio.Event()
        self._killed = False
        #: How it ended, as `communicate` found; None: not yet, or other code reads its output.
        self.ending: Ending | None = None
        self._pidfd = os.pidfd_open(popen.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_exit)
        assert popen.stdin
        assert popen.stdout
        assert popen.stderr
        self._stdout = PipeReader(popen.stdout)
        self._stderr = PipeReader(popen.stderr)
        self._stdin = PipeWriter(popen.stdin)

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._popen.poll() is None

    async def until_heard(self) -> bool:
        """Wait for its first output, and leave that there; False when it ended without any."""
        return await self._stdout.until_readable()

    def begin(self) -> None:
        """Start its time limit: it was started ahead, and is used from now on."""
        self._started = time.perf_counter()

    async def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            await self._stdin.write(data)

    async def read_exactly(self, size: int) -> bytes:
        return await self._stdout.read_exactly(size)

    async def communicate(self, stdin: bytes) -> Result:
        """Write all, close, and read to the end, within the limits.

        Raises `SandboxError` when the program's surroundings could not be made.
        """
        ending = Ending.EXITED
        streams: list[bytearray] = [bytearray(), bytearray()]
        within = [True]
        try:
            async with asyncio.timeout(self._limits.wall_s):
                await asyncio.gather(
                    self._feed(stdin),
                    self._collect(self._stdout, streams[0], within),
                    self._collect(self._stderr, streams[1], within),
                    self._exited.wait(),
                )
        except TimeoutError:
            ending = Ending.TIMED_OUT
        await self.end()
        if not within[0]:
            ending = Ending.OUTPUT_LIMIT
        elif ending is Ending.EXITED and self._popen.returncode < 0:
            ending = Ending.KILLED
        elif ending is Ending.EXITED and not self._killed and self._status.failed():
            said = streams[1].decode("utf-8", "replace").strip()[:500]
            raise SandboxError(f"The sandbox could not be made: {said or 'no reason given'}")
        self.ending = ending
        duration = time.perf_counter() - self._started
        code = self._popen.returncode
        return Result(ending, code, bytes(streams[0]), bytes(streams[1]), duration)

    def threads(self) -> list[ProgramThread]:
        """Its threads, all processes' together; takes milliseconds."""
        return threads_of(self.pid)

    def kill(self) -> None:
        if self._popen.returncode is None:
            self._killed = True
            self._status.kill(self._popen)

    async def end(self) -> None:
        """Kill what is left, wait for it, close the pipes; harmless when called twice."""
        self.kill()
        try:
            async with asyncio.timeout(_DEATH_S):
                while not await _within(self._exited, 1.0):
                    # What was killed first may not have been there yet.
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(self.pid, signal.SIGKILL)
                if self._pidfd >= 0:
                    await self._until_closed()
        except TimeoutError:
            raise SandboxError("A killed program did not end; its pipes are still open.") from None
        finally:
            self._detach()

    async def _until_closed(self) -> None:
        """Wait until no process holds the output pipes, so that none can write to them."""
        for stream in (self._stdout, self._stderr):
            while await stream.read(_CHUNK):
                pass

    def _detach(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
            for pipe in (self._stdout, self._stderr, self._stdin):
                pipe.close()

    def _on_exit(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self._popen.wait()
        self._exited.set()

    async def _feed(self, data: bytes) -> None:
        await self.write(data)
        with contextlib.suppress(OSError):
            self._stdin.close()

    async def _collect(self, stream: PipeReader, into: bytearray, within: list[bool]) -> None:
        cap = self._limits.output_bytes
        while chunk := await stream.read(_CHUNK):
            room = cap - len(into)
            into += chunk[:room]
            if len(chunk) > room:
                within[0] = False
                self.kill()
                return


async def _within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
