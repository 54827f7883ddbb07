"""Programs without a sandbox, for machines that have none, where the user allowed it.

Limits of single processes hold; nothing else is kept from a program that the service may do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from gymmesh_resource.sandbox.base import Launch, LocalSandbox, limits_script
from gymmesh_resource.sandbox.process import Process
from gymmesh_resource.sandbox.program import Limits, Program


class UnsandboxedPrograms(LocalSandbox):
    """`Sandbox` in name only: programs run as the service's user, on its machine."""

    def __init__(self, *, concurrency: int = 4, python: str | None = None) -> None:
        super().__init__(concurrency=concurrency)
        self._python = python or sys.executable
        self._folders: dict[int, str] = {}

    def _launch(self, program: Program, limits: Limits, slot: int) -> Launch:
        folder = self._folders[slot] = tempfile.mkdtemp(prefix="gymmesh-program-")
        for name, content in program.files.items():
            (Path(folder) / name).write_bytes(content)
        places = {"{python}": self._python}
        command = [
            places.get(part, part.replace("/app/", folder + "/", 1)) for part in program.argv
        ]
        # The user's own processes count among `processes`: that limit is left out.
        script = limits_script(limits).partition("ulimit -p")[0]
        environment = {"PATH": os.defpath, "HOME": folder, "LANG": "C.UTF-8"}
        inner = ["/bin/sh", "-c", script + 'exec "$@"', "sh", *command]
        return Launch(inner, cwd=folder, env=environment)

    async def _end(self, process: Process, slot: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # those that the program left behind
        await super()._end(process, slot)

    def _clean(self, slot: int) -> None:
        shutil.rmtree(self._folders.pop(slot), ignore_errors=True)
