"""Programs without a sandbox, for machines where no sandbox works and the user allowed it.

Limits of single processes apply. Otherwise a program may do everything that the service may do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gymmesh.sandbox.v1 import process_pb2
from gymmesh_resource.sandbox.program import Limits, Program
from gymmesh_resource.sandbox.runner import ProgramRunner, rlimits_of
from gymmesh_sandbox_local import (
    ProcessStart,
    StartedProcess,
    Starter,
    descendants_of,
    start_process,
    threads_of,
)


class UnsandboxedPrograms(ProgramRunner):
    """`Sandbox` in name only: programs run as the service's user, on its machine."""

    def __init__(self, *, concurrency: int = 4, python: str | None = None) -> None:
        super().__init__(concurrency=concurrency, starter=Starter(plain=True))
        self._python = python or sys.executable

    def _surroundings(self, program: Program, limits: Limits) -> Folder:
        return Folder(self._starter, self._python, program, limits)


class Folder:
    """See `Surroundings`: a folder of this machine, and the program's own session of processes."""

    def __init__(self, starter: Starter, python: str, program: Program, limits: Limits) -> None:
        self._starter = starter
        self._python = python
        self._program = program
        self._limits = limits
        self._path = ""
        self._started: StartedProcess | None = None

    async def begin(self) -> StartedProcess:
        folder = self._path = tempfile.mkdtemp(prefix="gymmesh-program-")
        for name, content in self._program.files.items():
            (Path(folder) / name).write_bytes(content)
        places = {"{python}": self._python}
        command = [
            places.get(part, part.replace("/app/", folder + "/", 1)) for part in self._program.argv
        ]
        start = ProcessStart(
            argv=[os.fsencode(part) for part in command],
            env={b"PATH": os.defpath.encode(), b"HOME": os.fsencode(folder), b"LANG": b"C.UTF-8"},
            cwd=os.fsencode(folder),
            # The user's own processes count among `processes`: that limit is left out.
            rlimits=rlimits_of(self._limits),
        )
        self._started = await start_process(self._starter, "plain", start)
        return self._started

    @property
    def lost(self) -> bool:
        return False

    def threads(self, pid: int) -> Sequence[process_pb2.ThreadUsage]:
        return threads_of(self._starter.pid, descendants_of(pid))

    def kill(self) -> None:
        """Kills the processes of its session that did not begin a group of their own."""
        if self._started is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._started.child.pid, signal.SIGKILL)
            # It may be just starting, and have no group yet.
            self._started.child.signal(signal.SIGKILL)

    async def end(self) -> None:
        # After its end its number may be another's; what it left was killed at once.
        if self._started is not None and not self._started.child.ended:
            self.kill()

    def close(self) -> None:
        if self._path:
            shutil.rmtree(self._path, ignore_errors=True)
            self._path = ""
