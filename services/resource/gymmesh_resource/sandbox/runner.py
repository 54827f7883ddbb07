"""The base of every `Sandbox` on this machine: limits and starts programs, and ends each of them.

The spawner of `gymmesh_sandbox_local` starts all processes, so that the service itself never forks.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from gymmesh_resource.sandbox import metrics
from gymmesh_resource.sandbox.process import DEATH_S, Process, Surroundings
from gymmesh_resource.sandbox.program import Limits, Program, Result, SandboxError
from gymmesh_resource.workers import SANDBOX_WAIT_SECONDS
from gymmesh_sandbox_local import Starter

_CLOSE_S = 5.0
_T = TypeVar("_T")


class ProgramRunner:
    """`Sandbox` of processes of this machine; subclasses make the surroundings of each program.

    `concurrency`: programs at a time; more wait.
    """

    def __init__(self, *, concurrency: int, starter: Starter) -> None:
        self._concurrency = concurrency
        self._starter = starter
        self._restarting = asyncio.Lock()
        self._places = asyncio.Semaphore(concurrency)
        self._working = 0
        self._running: set[Process] = set()
        self._live = 0  # programs that start, run or end
        self._idle = asyncio.Event()
        self._idle.set()
        self._opened = False

    @property
    def spawner_pid(self) -> int:
        """The process that starts programs; 0: it does not run."""
        return self._starter.pid

    async def open(self) -> None:
        """Starts the spawner. Raises SpawnError."""
        await self._starter.open()
        self._opened = True
        metrics.SANDBOX_PLACES.labels().inc(self._concurrency)
        metrics.SANDBOX_PLACES_BUSY.labels()
        SANDBOX_WAIT_SECONDS.labels()
        # 0 from the start: an alert asks how much it grew.
        metrics.SANDBOX_ENDINGS.labels("failed")
        self._places = asyncio.Semaphore(self._concurrency)

    async def close(self) -> None:
        """Kill what runs; harmless when called twice."""
        if not self._opened:
            return
        self._opened = False
        metrics.SANDBOX_PLACES.labels().dec(self._concurrency)
        for process in list(self._running):
            process.kill()
        # Each run ends by itself then, and cleans up.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._idle.wait()
        await self._starter.close()

    async def run(self, program: Program, limits: Limits) -> Result:
        async with self.start(program, limits) as process:
            return await process.communicate(program.stdin)

    @asynccontextmanager
    async def start(self, program: Program, limits: Limits) -> AsyncGenerator[Process]:
        self._check_open()
        await self._take_place()
        try:
            self._check_open()  # it may have been closed while we waited
            self._working += 1
            metrics.SANDBOX_PLACES_BUSY.labels().inc()
            ending = "failed"
            try:
                async with self._running_program(program, limits) as process:
                    try:
                        yield process
                        ending = _ending_of(process)
                    except SandboxError:
                        raise
                    except BaseException:
                        ending = _ending_of(process)
                        raise
            finally:
                self._working -= 1
                metrics.SANDBOX_PLACES_BUSY.labels().dec()
                metrics.SANDBOX_ENDINGS.labels(ending).inc()
        finally:
            self._places.release()

    async def _take_place(self) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        began = time.monotonic()
        try:
            await self._places.acquire()
        finally:
            SANDBOX_WAIT_SECONDS.labels().observe(time.monotonic() - began)

    @asynccontextmanager
    async def _running_program(self, program: Program, limits: Limits) -> AsyncGenerator[Process]:
        async with self._process(self._surroundings(program, limits), limits) as process:
            metrics.SANDBOX_STARTS.labels("cold").inc()
            yield process

    def _check_open(self) -> None:
        if not self._opened:
            raise SandboxError("The sandbox is not open.")

    @asynccontextmanager
    async def _process(self, surroundings: Surroundings, limits: Limits) -> AsyncGenerator[Process]:
        """The program of some surroundings; nothing of either is left after the block."""
        self._live += 1
        self._idle.clear()
        try:
            process, cancelled = await _settled(
                asyncio.ensure_future(self._started(surroundings, limits))
            )
            self._running.add(process)
            if not self._opened:  # it was closed meanwhile
                process.kill()
            try:
                if cancelled:
                    raise asyncio.CancelledError
                yield process
            finally:
                # To its end even when cancelled meanwhile: its place is another's after that.
                _, cancelled = await _settled(asyncio.ensure_future(self._end(process)))
                if cancelled:
                    raise asyncio.CancelledError
        finally:
            surroundings.close()
            self._live -= 1
            if not self._live:
                self._idle.set()

    async def _started(self, surroundings: Surroundings, limits: Limits) -> Process:
        try:
            await self._restart()
            return Process(await surroundings.begin(), limits, surroundings)
        except BaseException as error:
            await _end_of(surroundings)
            if isinstance(error, OSError):
                raise SandboxError(f"The sandbox could not be created: {error}") from error
            raise

    async def _restart(self) -> None:
        """Starts the spawner again when somebody killed it."""
        if not self._starter.running:
            async with self._restarting:
                if not self._starter.running:
                    await self._starter.open()

    async def _end(self, process: Process) -> None:
        try:
            await process.end()
        finally:
            self._running.discard(process)

    def _surroundings(self, program: Program, limits: Limits) -> Surroundings:
        """What a program is to run in, not yet made."""
        raise NotImplementedError


async def _end_of(surroundings: Surroundings) -> None:
    try:
        async with asyncio.timeout(DEATH_S):
            await surroundings.end()
    except TimeoutError:
        raise SandboxError(
            "The process of a sandbox that could not be created did not end in time."
        ) from None


def _ending_of(process: Process) -> str:
    """How a program ended, or is about to end with the block that it was started for."""
    if process.ending is not None:
        return process.ending.name.lower()
    return "stopped" if process.alive else "exited"


def rlimits_of(limits: Limits) -> Sequence[tuple[int, int]]:
    """The limits that the kernel keeps of each process, but for that of processes."""
    return (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
    )


async def _settled(work: asyncio.Task[_T]) -> tuple[_T, bool]:
    """What the work gives, once it is done, and whether the wait for it was cancelled."""
    cancelled = False
    while not work.done():
        try:
            await asyncio.wait((work,))
        except asyncio.CancelledError:
            cancelled = True
    return work.result(), cancelled
