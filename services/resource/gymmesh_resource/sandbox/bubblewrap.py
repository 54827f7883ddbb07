"""Untrusted programs in bubblewrap: namespaces of their own, a read-only system, no network.

Each run gets fresh user, process, network, ipc, host-name and mount namespaces, an empty `/tmp`,
and a filter of system calls. A service that runs as root gives each slot user ids of its own that
own nothing on the machine. bubblewrap's manual: bwrap(1).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import platform
import shutil
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from gymmesh_resource.sandbox import metrics
from gymmesh_resource.sandbox.process import Process
from gymmesh_resource.sandbox.program import Limits, Program, SandboxError, SandboxUnavailable
from gymmesh_resource.sandbox.runner import ProgramRunner
from gymmesh_resource.sandbox.surroundings import FreshSystem, Slot, SystemRoot
from gymmesh_resource.sandbox.warm import LateFiles, ProgramKind, Spare, WarmPool, kind_of
from gymmesh_sandbox_local import (
    Groups,
    SpawnError,
    Starter,
    UnknownProcessor,
    filter_for,
    first_process_for,
)

_LOGGER = logging.getLogger("gymmesh.resource")
_PROBE_S = 10.0
# The numbers of slots in use in this process: two sandboxes share no user id.
_TAKEN: set[int] = set()


class BubblewrapSandbox(ProgramRunner):
    """`Sandbox` on bubblewrap.

    `concurrency`: programs at a time; more wait. `python`: the interpreter for programs, by
    default the service's own where programs can reach it, else the system's. `warm`: programs
    that are started ahead, at most; 0 is none. `warm_idle_s`: seconds without
    a request after which they are ended.
    """

    def __init__(
        self,
        *,
        concurrency: int = 4,
        python: str | None = None,
        warm: int = 0,
        warm_idle_s: float = 300.0,
    ) -> None:
        super().__init__(concurrency=concurrency, starter=Starter())
        self.warm = warm
        """How many programs may be started ahead."""
        self._warm_idle_s = warm_idle_s
        self._pool: WarmPool | None = None
        self.handed_over = 0
        """How many requests got a program that was started ahead."""
        self._wanted_python = python
        self._root: SystemRoot | None = None
        self._slots: list[Slot] = []
        self._numbers: list[int] = []
        self._tokens = itertools.count(1)
        self.grouped = False
        """Whether control groups bound the memory and processes of a program as a whole."""

    def waiting(self, program: Program, limits: Limits) -> int:
        """How many programs are started and can become this one."""
        kind = kind_of(program, limits)
        return self._pool.waiting(kind) if self._pool and kind else 0

    async def open(self) -> None:
        """Make the slots and run a first program. Raises `SandboxUnavailable`."""
        bwrap = shutil.which("bwrap")
        if not bwrap:
            raise SandboxUnavailable(
                "bubblewrap is not installed on this machine. On Debian, run `apt-get "
                "install bubblewrap`."
            )
        try:
            calls, first = filter_for(platform.machine()), first_process_for(platform.machine())
        except UnknownProcessor as error:
            raise SandboxUnavailable(
                f"Programs can't be sandboxed on this machine: {error}."
            ) from None
        python, prefix = find_python(self._wanted_python)
        try:
            await super().open()
        except SpawnError as error:
            raise _does_not_work(error) from None
        self._root = SystemRoot(bwrap, calls, first, python, prefix)
        try:
            await asyncio.to_thread(self._make_slots)
            await self._probe(python)
        except BaseException:
            await self.close()
            raise
        if self.warm:
            processors = len(os.sched_getaffinity(0))
            self._pool = WarmPool(
                self.warm,
                self._warm_idle_s,
                start=self._start_spare,
                # A start beside live programs on every processor would only slow them down.
                may_start=lambda: self._working < processors,
            )
            self._pool.open()

    async def close(self) -> None:
        """Kill what runs and remove the control groups; harmless when called twice."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()
        await super().close()
        slots, self._slots = self._slots, []
        for slot in slots:
            await asyncio.to_thread(slot.close)
        _TAKEN.difference_update(self._numbers)
        self._numbers = []
        if self._root is not None:
            self._root.close()
            self._root = None

    def _make_slots(self) -> None:
        free = (number for number in itertools.count() if number not in _TAKEN)
        # A slot for each program that runs, and one for each that waits.
        self._numbers = list(itertools.islice(free, self._concurrency + self.warm))
        _TAKEN.update(self._numbers)
        groups = Groups(None)
        if os.geteuid() == 0:
            groups.remove_stale()
        self.grouped = groups.usable()
        if not self.grouped:
            _LOGGER.warning(
                "Control groups can't be used on this machine. The memory limit of a sandboxed "
                "program applies to each process of the program, not to all processes together. "
                "Run the service as root, or delegate the controllers memory and pids to the "
                "service. See docs/how-to/sandbox.md."
            )
        numbers = reversed(self._numbers)
        self._slots = [Slot.make(number, groups if self.grouped else None) for number in numbers]

    async def _probe(self, python: str) -> None:
        program = Program(("{python}", "-I", "-S", "-c", "print('ready')"))
        try:
            result = await self.run(program, Limits(wall_s=_PROBE_S))
        except SandboxError as error:
            raise _does_not_work(error) from None
        if result.stdout != b"ready\n":
            said = result.stderr.decode("utf-8", "replace").strip()[-300:]
            raise SandboxUnavailable(
                f"The interpreter {python} does not run in the sandbox ({said}). Set the option "
                "'python' to an interpreter below /usr."
            )

    @asynccontextmanager
    async def _running_program(self, program: Program, limits: Limits) -> AsyncGenerator[Process]:
        kind = kind_of(program, limits)
        spare = self._pool.take(kind) if self._pool and kind else None
        try:
            if spare is not None:
                async with spare.surroundings:
                    if await spare.hand_over(program):
                        self.handed_over += 1
                        metrics.SANDBOX_STARTS.labels("warm").inc()
                        yield spare.process
                        return
            async with super()._running_program(program, limits) as process:
                yield process
        finally:
            if self._pool is not None:
                self._pool.wake()

    async def _start_spare(self, kind: ProgramKind) -> Spare:
        """A program that waits, in surroundings that are complete. Raises `SandboxError`."""
        async with AsyncExitStack() as stack:
            try:
                files = LateFiles(kind.late)
            except OSError as error:
                raise SandboxError(f"The sandbox could not write a file: {error}") from error
            stack.callback(files.close)
            program = Program(kind.argv, dict(kind.files))
            surroundings = self._surroundings(program, kind.limits, files)
            process = await stack.enter_async_context(self._process(surroundings, kind.limits))
            try:
                async with asyncio.timeout(_PROBE_S):
                    ready = await process.until_heard()
            except TimeoutError:
                ready = False
            if not ready:
                raise SandboxError(
                    "A program that was started in advance did not report that it is ready."
                )
            files.unlink()
            return Spare(kind, process, files, stack.pop_all())

    def _surroundings(
        self, program: Program, limits: Limits, late: LateFiles | None = None
    ) -> FreshSystem:
        assert self._root is not None
        return FreshSystem(
            self._root,
            self._starter,
            next(self._tokens),
            self._slots,
            program,
            limits,
            late.paths if late else {},
        )


def _does_not_work(error: Exception) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"bubblewrap does not work on this machine ({error}). Bubblewrap needs unprivileged user "
        "namespaces."
    )


def find_python(wanted: str | None) -> tuple[str, Path | None]:
    """An interpreter that programs can reach, and the folder to show them if not below /usr.

    Raises `SandboxUnavailable`.
    """
    own = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    candidates: Sequence[str] = (
        [wanted] if wanted else [str(own), "/usr/local/bin/python3", "/usr/bin/python3"]
    )
    for candidate in candidates:
        path = Path(os.path.realpath(candidate))
        if not path.is_file():
            continue
        if path.is_relative_to("/usr"):
            return candidate if candidate.startswith("/usr/") else str(path), None
        if all(parent.stat().st_mode & 0o001 for parent in path.parents):
            return str(path), path.parent.parent
    raise SandboxUnavailable(
        f"Programs can't reach a Python interpreter ({', '.join(candidates)}). Install Python "
        "below /usr, or set the option 'python'."
    )
