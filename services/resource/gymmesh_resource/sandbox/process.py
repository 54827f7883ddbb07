"""A started program: its pipes, its end, and the certainty that nothing of it is left.

Invariant: when `ended` returns, the launcher is reaped and every pipe to the program is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable

from .pipes import PipeReader, PipeWriter
from .program import Ending, Limits, Result, SandboxError

# After a SIGKILL the kernel takes milliseconds; many large processes on a busy machine take longer.
# What runs out here is a failure that no program should be able to choose.
_DEATH_S = 60.0
_CHUNK = 65_536


class Process:
    """A program that runs.

    `failed`: says, after the end, whether it never ran because its surroundings could not be
    made. `kill`: kills it, and all that it started.
    """

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        limits: Limits,
        *,
        failed: Callable[[], bool],
        kill: Callable[[subprocess.Popen[bytes]], None],
    ) -> None:
        self._popen = popen
        self._limits = limits
        self._failed = failed
        self._kill = kill
        self._started = time.perf_counter()
        self.pid = popen.pid
        self._exited = asyncio.Event()
        self._killed = False
        #: How it ended, as `communicate` found; None: not yet, or other code reads its output.
        self.ending: Ending | None = None
        self._pidfd = -1

    def connect(self) -> None:
        """Attach the pipes to the event loop."""
        loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(self._popen.pid)
        loop.add_reader(self._pidfd, self._on_exit)
        assert self._popen.stdin
        assert self._popen.stdout
        assert self._popen.stderr
        self._stdout = PipeReader(self._popen.stdout)
        self._stderr = PipeReader(self._popen.stderr)
        self._stdin = PipeWriter(self._popen.stdin)

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
        """Write to the program's input; what it no longer reads is dropped."""
        with contextlib.suppress(OSError):
            await self._stdin.write(data)

    async def read_exactly(self, size: int) -> bytes:
        """Read from the program's output. Raises EOFError when it ended before."""
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
        elif ending is Ending.EXITED and not self._killed and self._failed():
            said = streams[1].decode("utf-8", "replace").strip()[:500]
            raise SandboxError(f"The sandbox could not be made: {said or 'no reason given'}")
        self.ending = ending
        duration = time.perf_counter() - self._started
        code = self._popen.returncode
        return Result(ending, code, bytes(streams[0]), bytes(streams[1]), duration)

    def kill(self) -> None:
        """Kill all its processes."""
        if self._popen.returncode is None:
            self._killed = True
            self._kill(self._popen)

    async def end(self) -> None:
        """Kill what is left, wait for it, close the pipes; harmless when called twice."""
        self.kill()
        try:
            async with asyncio.timeout(_DEATH_S):
                while not await _within(self._exited, 1.0):
                    # What was killed first may not have been there yet.
                    _kill_session(self._popen)
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


def _kill_session(popen: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(popen.pid, signal.SIGKILL)


async def _within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
