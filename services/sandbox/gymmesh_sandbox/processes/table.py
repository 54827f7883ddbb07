"""The processes of one sandbox, by id, with limits on what is kept of all of them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox import metrics
from gymmesh_sandbox.backends import RunningProcess
from gymmesh_sandbox.errors import process_not_found, sandbox_limit
from gymmesh_sandbox.processes.process import ProcessLimits, SandboxProcess
from gymmesh_sandbox.repeats import KEPT_ANSWERS
from gymmesh_sandbox.timers import Timers

_ID_BYTES: Final = 8


class ProcessTable:
    """The processes of one sandbox.

    Args:
        most_running: the maximum number of running processes.
        kept_bytes: the maximum bytes of output that are kept of all processes.
        repeat_s: how long a process is kept after its end.
        timers: the service's timers.
        on_stuck: called if a process does not end after it was killed.
    """

    def __init__(
        self,
        *,
        most_running: int,
        kept_bytes: int,
        repeat_s: float,
        timers: Timers,
        on_stuck: Callable[[], None],
    ) -> None:
        self._most_running = most_running
        self._kept_bytes = kept_bytes
        self._repeat_s = repeat_s
        self._timers = timers
        self._on_stuck = on_stuck
        self._by_id: dict[str, SandboxProcess] = {}
        self._ended: dict[str, SandboxProcess] = {}  # in the order of their ends
        self._forgotten: dict[str, Callable[[], None]] = {}
        self._kept = 0
        #: Processes that run or start.
        self.running = 0

    def reserve(self) -> None:
        """Reserves a place for a process that will be started. Raises SANDBOX_LIMIT.

        `add` uses the place, or `give_back` frees it.
        """
        if self.running >= self._most_running:
            raise sandbox_limit(
                f"The sandbox already runs the maximum number of processes ({self._most_running}).",
                self._most_running,
                retry_after_s=1.0,
            )
        self.running += 1

    def give_back(self) -> None:
        """Frees a reserved place."""
        self.running -= 1

    def add(
        self,
        running: RunningProcess,
        limits: ProcessLimits,
        *,
        takes_stdin: bool,
        on_forgotten: Callable[[], None],
    ) -> SandboxProcess:
        """Adds a process that was just started, in a reserved place."""
        process = SandboxProcess(
            f"p-{secrets.token_hex(_ID_BYTES)}",
            running,
            limits,
            reserve=self._reserve_bytes,
            timers=self._timers,
            on_end=self._on_end,
            on_stuck=self._on_stuck,
            takes_stdin=takes_stdin,
        )
        self._by_id[process.id] = process
        self._forgotten[process.id] = on_forgotten
        metrics.SANDBOXES_PROCESSES.labels().inc()
        return process

    def get(self, process_id: str) -> SandboxProcess:
        """A process. Raises SANDBOX_PROCESS_NOT_FOUND."""
        process = self._by_id.get(process_id)
        if process is None:
            raise process_not_found(process_id)
        return process

    def lose(self, error: MeshError) -> None:
        """The sandbox ends now: listeners to its running processes get this error."""
        for process in self._by_id.values():
            process.lose(error)

    async def give_up(self, error: MeshError) -> None:
        """The sandbox ended: listeners to processes that ran get the error."""
        await asyncio.gather(*(process.give_up(error) for process in list(self._by_id.values())))

    def _on_end(self, process: SandboxProcess) -> None:
        self.running -= 1
        metrics.SANDBOXES_PROCESSES.labels().dec()
        if process.exit is not None and not process.takes_stdin:
            metrics.SANDBOXES_EXEC_SECONDS.labels().observe(process.exit.duration_us / 1e6)
        self._ended[process.id] = process
        while len(self._ended) > KEPT_ANSWERS:
            self._forget(next(iter(self._ended)))
        self._timers.after(self._repeat_s, lambda: self._forget(process.id))

    def _forget(self, process_id: str) -> None:
        process = self._ended.pop(process_id, None)
        if process is not None:
            del self._by_id[process_id]
            self._kept -= process.kept
            self._forgotten.pop(process_id)()

    def _reserve_bytes(self, wanted: int) -> int:
        while self._ended and self._kept + wanted > self._kept_bytes:
            self._forget(next(iter(self._ended)))
        granted = max(0, min(wanted, self._kept_bytes - self._kept))
        self._kept += granted
        return granted
