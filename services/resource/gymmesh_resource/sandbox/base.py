"""What every sandbox of local processes shares: slots, starting, and cleaning up after each run.

A slot is the surroundings of one program. It has a number, which makes user ids and control
groups distinct, and is given back only when nothing of its program is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from gymmesh_resource.sandbox import metrics
from gymmesh_resource.sandbox.process import LauncherStatus, Process
from gymmesh_resource.sandbox.program import Limits, Program, Result, SandboxError
from gymmesh_resource.workers import SANDBOX_WAIT_SECONDS

_CLOSE_S = 5.0
# The numbers of slots in use in this process: two sandboxes share no user id and no control group.
_TAKEN: set[int] = set()
_T = TypeVar("_T")


@dataclass(slots=True)
class Launch:
    """How a program is started.

    `descriptors` are passed on to the launcher and closed here; on `status` the launcher writes
    the program's process id and its end; -1 if it does not.
    """

    argv: list[str]
    cwd: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    descriptors: list[int] = field(default_factory=list)
    status: int = -1


class LocalSandbox:
    """`Sandbox` of processes of this machine; subclasses say how one is launched.

    `concurrency`: programs at a time; more wait. `spare`: slots beside those, for programs that
    are started ahead.
    """

    def __init__(self, *, concurrency: int, spare: int = 0) -> None:
        self._concurrency = concurrency
        self._slot_count = concurrency + spare
        self._slots: list[int] = []
        self._numbers: list[int] = []
        self._places = asyncio.Semaphore(concurrency)
        self._working = 0
        self._running: set[Process] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._spawner: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        """Make the slots. Raises `SandboxUnavailable`."""
        # One thread for the sandbox's life: the launcher dies with the thread that started it.
        self._spawner = ThreadPoolExecutor(1, thread_name_prefix="sandbox-spawner")
        free = (number for number in itertools.count() if number not in _TAKEN)
        self._numbers = list(itertools.islice(free, self._slot_count))
        _TAKEN.update(self._numbers)
        self._slots = self._numbers[::-1]
        metrics.SANDBOX_PLACES.labels().inc(self._concurrency)
        metrics.SANDBOX_PLACES_BUSY.labels()
        SANDBOX_WAIT_SECONDS.labels()
        # 0 from the start: an alert asks how much it grew.
        metrics.SANDBOX_ENDINGS.labels("failed")
        self._places = asyncio.Semaphore(self._concurrency)

    async def close(self) -> None:
        """Kill what runs; harmless when called twice."""
        for process in list(self._running):
            process.kill()
        # Each run ends by itself then, and cleans up.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._idle.wait()
                _TAKEN.difference_update(self._numbers)
                self._numbers = []
        if self._spawner is not None:
            self._spawner.shutdown(wait=False)
            self._spawner = None
            metrics.SANDBOX_PLACES.labels().dec(self._concurrency)

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
        with self._slot() as slot:
            launch = self._launch(program, limits, slot)
            async with self._process(launch, limits, slot) as process:
                metrics.SANDBOX_STARTS.labels("cold").inc()
                yield process

    @contextmanager
    def _slot(self) -> Generator[int]:
        slot = self._slots.pop()
        try:
            yield slot
        finally:
            self._slots.append(slot)

    def _check_open(self) -> None:
        if self._spawner is None:
            raise SandboxError("The sandbox is not open.")

    @asynccontextmanager
    async def _process(self, launch: Launch, limits: Limits, slot: int) -> AsyncGenerator[Process]:
        try:
            process, cancelled = await _settled(
                asyncio.ensure_future(self._started(launch, limits))
            )
            self._running.add(process)
            self._idle.clear()
            try:
                if cancelled:
                    raise asyncio.CancelledError
                yield process
            finally:
                # To its end even when cancelled meanwhile: the slot is another's after that.
                _, cancelled = await _settled(asyncio.ensure_future(self._end(process, slot)))
                if cancelled:
                    raise asyncio.CancelledError
        finally:
            if launch.status >= 0:
                os.close(launch.status)
            self._clean(slot)

    async def _started(self, launch: Launch, limits: Limits) -> Process:
        loop = asyncio.get_running_loop()
        try:
            popen = await loop.run_in_executor(self._spawner, _spawn, launch)
        except OSError as error:
            raise SandboxError(f"The sandbox could not be started: {error}") from error
        return Process(popen, limits, LauncherStatus(launch.status))

    async def _end(self, process: Process, slot: int) -> None:
        try:
            await process.end()
        finally:
            self._running.discard(process)
            if not self._running:
                self._idle.set()

    def _launch(self, program: Program, limits: Limits, slot: int) -> Launch:
        raise NotImplementedError

    def _clean(self, slot: int) -> None:
        """Remove what the slot's program may have left."""


def _ending_of(process: Process) -> str:
    """How a program ended, or is about to end with the block that it was started for."""
    if process.ending is not None:
        return process.ending.name.lower()
    return "stopped" if process.alive else "exited"


def limits_script(limits: Limits) -> str:
    """Shell commands that bound the processes started after them.

    Sizes are in the units of `ulimit` in POSIX mode: 512 bytes for files, KiB for memory.
    """
    return (
        f"ulimit -c 0; ulimit -t {limits.cpu_s}; ulimit -v {limits.memory_bytes // 1024}; "
        f"ulimit -f {limits.file_bytes // 512}; ulimit -n {limits.open_files}; "
        # The flag's name differs between shells.
        f"ulimit -p {limits.processes + 2} 2>/dev/null || ulimit -u {limits.processes + 2}; "
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


def _spawn(launch: Launch) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            launch.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=launch.cwd,
            env=launch.env,
            pass_fds=launch.descriptors,
            start_new_session=True,
            bufsize=0,
        )
    finally:
        for descriptor in launch.descriptors:
            os.close(descriptor)
