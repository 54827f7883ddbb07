"""A process in a bubblewrap sandbox: its streams, its descendants, its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

from gymmesh.sandbox.v1 import process_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.base import ProcessEnded, RunningProcess, Stream
from gymmesh_sandbox_local import (
    MemoryEvents,
    ProcessGroup,
    StartedProcess,
    descendants_of,
    threads_of,
)

_PIECE = 1 << 20
# How long what a process wrote is looked for after its end.
_LAST_WORDS_S = 0.5
_KILL_S = 10.0
_KILL_STEP_S = 0.005


class ProcessHome(Protocol):
    """The sandbox that a process runs in."""

    @property
    def first_pid(self) -> int:
        """The process id of the sandbox's first process on this machine."""

    def memory_events(self) -> MemoryEvents:
        """The kernel's reports of memory shortage."""

    def lost(self) -> MeshError | None:
        """SANDBOX_LOST if the sandbox has ended or is about to end."""

    def kill(self) -> None:
        """Kills everything in the sandbox, and the sandbox."""


class LocalProcess(RunningProcess):
    """See RunningProcess.

    Args:
        started: the process.
        group: its descendants; None if control groups cannot be used.
        sandbox: the sandbox that it runs in.
        on_end: called when it has ended and its output was read. Nothing is held afterwards.
    """

    def __init__(
        self,
        started: StartedProcess,
        group: ProcessGroup | None,
        sandbox: ProcessHome,
        on_end: Callable[[], None],
    ) -> None:
        self._started = started
        self._child = started.child
        self._stdin = started.stdin
        self._outputs = {Stream.STDOUT: started.stdout, Stream.STDERR: started.stderr}
        self._group = group
        self._sandbox = sandbox
        self._on_end = on_end
        self._memory_events = sandbox.memory_events()
        self._killed = False
        self._read_out = False
        self._ended: asyncio.Future[ProcessEnded] = asyncio.ensure_future(self._until_ended())
        # Somebody may never ask how it ended.
        self._ended.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return not self._child.ended

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        reads = {asyncio.ensure_future(self._read(stream)): stream for stream in self._outputs}
        until = None
        try:
            while reads:
                timeout = None if until is None else max(0.0, until - time.monotonic())
                waiting: list[asyncio.Future[Any]] = [*reads]
                if until is None:
                    waiting.append(self._ended)
                done, _ = await asyncio.wait(
                    waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    return  # what outlives the process keeps its streams open
                if self._ended in done and until is None:
                    until = time.monotonic() + _LAST_WORDS_S
                for task in [task for task in reads if task in done]:
                    stream = reads.pop(task)
                    if piece := task.result():
                        yield stream, piece
                        reads[asyncio.ensure_future(self._read(stream))] = stream
        finally:
            for task in reads:
                task.cancel()
            for pipe in self._outputs.values():
                pipe.close()
            self._read_out = True
            self._maybe_over()

    def _maybe_over(self) -> None:
        if self._read_out and self._child.ended:
            self._on_end()

    async def _read(self, stream: Stream) -> bytes:
        return await self._outputs[stream].read(_PIECE)

    async def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            await self._stdin.write(data)

    async def close_stdin(self) -> None:
        with contextlib.suppress(OSError):
            self._stdin.close()

    async def signal(self, number: int, *, descendants: bool) -> None:
        if self._child.ended:
            return
        if number == signal.SIGKILL:
            self._killed = True
        if not descendants:
            self._child.signal(number)
        elif number == signal.SIGKILL:
            await self._kill_all()
        else:
            for pid in self._members():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    async def _kill_all(self) -> None:
        """Kills all processes. If they fork faster than they are killed, also the sandbox."""
        end = time.monotonic() + _KILL_S
        if self._group is None:
            self._child.signal(signal.SIGSTOP)  # what it leaves behind could not be found
        while members := self._members():
            if self._group is not None:
                self._group.kill()
            else:
                # The first one last: the others stay its children while it is there.
                for pid in members[:0:-1]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                if len(members) == 1:
                    self._child.signal(signal.SIGKILL)
                    break
            if time.monotonic() > end:
                self._sandbox.kill()
                break
            await asyncio.sleep(_KILL_STEP_S)
        await asyncio.wait([self._ended], timeout=_KILL_S)

    def _members(self) -> list[int]:
        if self._group is not None:
            return self._group.members()
        return [] if self._child.ended else descendants_of(self._child.pid)

    async def wait(self) -> ProcessEnded:
        return await asyncio.shield(self._ended)

    async def _until_ended(self) -> ProcessEnded:
        try:
            status = await asyncio.shield(self._child.status)
        except asyncio.CancelledError:
            if not self._child.status.cancelled():
                raise
            status = signal.SIGKILL  # the spawner is gone, and everything with it
        self._child.close()
        self._stdin.close()
        if self._group is not None:
            self._group.remove()
        self._maybe_over()
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if not number:
            return ProcessEnded(exit_code=os.waitstatus_to_exitcode(status))
        if number == signal.SIGKILL and not self._killed:
            if lost := self._sandbox.lost():
                raise lost
            return killed_meanwhile(self._memory_events, self._sandbox.memory_events())
        return ProcessEnded(signal=number)

    def threads(self) -> Sequence[process_pb2.ThreadUsage]:
        if self._child.ended:
            return ()
        return threads_of(self._sandbox.first_pid, self._members())

    def close(self) -> None:
        """Releases it, after its sandbox has ended."""
        self._started.close()


def killed_meanwhile(before: MemoryEvents, now: MemoryEvents) -> ProcessEnded:
    """How a process ended that got SIGKILL between two reads of the kernel's memory reports."""
    killed = now.kills > before.kills
    at_limit = now.limit_hits > before.limit_hits
    return ProcessEnded(
        signal=signal.SIGKILL,
        out_of_memory=killed and at_limit,
        machine_out_of_memory=killed and not at_limit,
    )
