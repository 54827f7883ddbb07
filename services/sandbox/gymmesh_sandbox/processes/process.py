"""One process in a sandbox, from its start until its result is forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gymmesh.sandbox.v1 import process_pb2
from gymmesh_runtime.errors import MeshError, copy_of, field_invalid, unforeseen
from gymmesh_runtime.timers import cancel_and_wait
from gymmesh_sandbox import metrics
from gymmesh_sandbox.backends import ProcessEnded, RunningProcess, Stream
from gymmesh_sandbox.processes.output import KeptOutput
from gymmesh_sandbox.timers import Timer, Timers

_LAST_OUTPUT_S: Final = 2.0  # after its end, for what is in its pipes
_KILL_S: Final = 10.0  # from SIGKILL to its end
_MICROSECONDS: Final = 1_000_000
_MILLISECONDS: Final = 1000

_Cause = process_pb2.ExitCause
_LOGGER = logging.getLogger("gymmesh.sandbox")


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What the service keeps of a process.

    Attributes:
        stdout_bytes, stderr_bytes: the maximum that is kept of each stream.
        timeout_s: the time after which the process is killed; 0: no limit.
        end_at_output_limit: whether the process is killed when it wrote more than is kept.
    """

    stdout_bytes: int
    stderr_bytes: int
    timeout_s: float = 0.0
    end_at_output_limit: bool = False


class SandboxProcess:
    """A process that runs or has ended.

    Args:
        process_id: unique in its sandbox.
        running: the backend's process; only this object reads its output.
        limits: what is kept of the process.
        reserve: requests room for output, see KeptOutput.
        timers: the service's timers.
        on_end: called when the process has ended, or when it is given up.
        on_stuck: called if the process does not end after it was killed.
        takes_stdin: whether WriteStdin may write to it.
    """

    def __init__(
        self,
        process_id: str,
        running: RunningProcess,
        limits: ProcessLimits,
        *,
        reserve: Callable[[int], int],
        timers: Timers,
        on_end: Callable[[SandboxProcess], None],
        on_stuck: Callable[[], None],
        takes_stdin: bool,
    ) -> None:
        self.id = process_id
        self.exit: process_pb2.ProcessExit | None = None
        self._running = running
        self._limits = limits
        self._timers = timers
        self._on_end = on_end
        self._on_stuck = on_stuck
        self._stdout = KeptOutput(limits.stdout_bytes, reserve)
        self._stderr = KeptOutput(limits.stderr_bytes, reserve)
        self._started = timers.clock.now()
        self._error: MeshError | None = None
        self._lost: MeshError | None = None  # why its sandbox ends
        self._killed_for: _Cause.ValueType | None = None
        self._changed = asyncio.Event()
        self._gone = asyncio.Event()  # the process, of which output may still come
        self._timer: Timer | None = None
        self._killing: asyncio.Task[None] | None = None
        self.takes_stdin = takes_stdin
        self._stdin_written = 0
        self._stdin_closed = False
        self._stdin_lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        if limits.timeout_s:
            self.limit_time(limits.timeout_s)
        self._life = self._in_background(self._live())

    @property
    def ended(self) -> bool:
        """Whether the process or its sandbox has ended."""
        return self.exit is not None or self._error is not None

    @property
    def kept(self) -> int:
        """How many bytes of output are kept."""
        return self._stdout.kept + self._stderr.kept

    def limit_time(self, seconds: float) -> None:
        """Kills the process after this many seconds."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.after(
            seconds, lambda: self._kill_for(process_pb2.EXIT_CAUSE_TIMED_OUT)
        )

    async def events(
        self, stdout_offset: int = 0, stderr_offset: int = 0
    ) -> AsyncGenerator[process_pb2.ProcessEvent, None]:
        """The events of the process, from these offsets on, until its end.

        Raises SANDBOX_LOST if its sandbox ends first.
        """
        yield _event(started=process_pb2.ProcessStarted(process_id=self.id))
        while True:
            # Before what is sent, so that nothing is missed that comes meanwhile.
            changed = self._changed
            ended = self.ended
            for piece in self._stdout.pieces(stdout_offset):
                stdout_offset += len(piece)
                yield _event(stdout=piece)
            for piece in self._stderr.pieces(stderr_offset):
                stderr_offset += len(piece)
                yield _event(stderr=piece)
            if ended:
                break
            await changed.wait()
        if self._error is not None:
            raise copy_of(self._error)
        yield _event(exit=self.exit)

    async def write_stdin(self, offset: int, content: bytes, *, close: bool) -> int:
        """Writes to the process's standard input; returns how many bytes were written so far.

        The write continues if the caller disconnects. Raises FIELD_INVALID.
        """
        if not self.takes_stdin:
            raise field_invalid(
                "process_id",
                "names a process that Exec started, and Exec sends all input at the start",
            )
        task = self._in_background(self._write(offset, content, close))
        await asyncio.wait((task,))
        task.result()
        return self._stdin_written

    def give_stdin(self, content: bytes) -> None:
        """Writes all of the process's standard input, without waiting for the process to read
        it.
        """
        self._in_background(self._give(content))

    async def signal(self, number: int, *, descendants: bool) -> None:
        """Sends a signal; does nothing if the process has ended."""
        if not self.ended:
            await self._running.signal(number, descendants=descendants)

    async def threads(self) -> Sequence[process_pb2.ThreadUsage]:
        """The process's threads now; none after it has ended."""
        return () if self.ended else await asyncio.to_thread(self._running.threads)

    def lose(self, error: MeshError) -> None:
        """The sandbox ends now, for this reason, which the backend does not know."""
        self._lost = error

    async def give_up(self, error: MeshError) -> None:
        """The sandbox ended: no further events arrive, and listeners get the error."""
        if not self.ended:
            self._error = error
            self._finish()
        await cancel_and_wait(*self._tasks)

    async def _live(self) -> None:
        pump = asyncio.get_running_loop().create_task(self._pump())
        try:
            ended = await self._running.wait()
            self._gone.set()
            await asyncio.wait((pump,), timeout=_LAST_OUTPUT_S)
            await cancel_and_wait(pump)
            if self._killing is not None:
                await asyncio.wait((self._killing,), timeout=_KILL_S)  # its descendants, too
        except MeshError as error:
            self._error = self._error or self._lost or error
        except Exception as error:
            self._error = self._error or unforeseen(error, "a process of a sandbox")
        else:
            self.exit = self._exit(ended)
        finally:
            pump.cancel()
        self._finish()

    async def _pump(self) -> None:
        """Reads the process's output, including the part that is dropped, so that the process
        never waits for a reader.
        """
        try:
            async for stream, piece in self._running.output():
                output = self._stdout if stream is Stream.STDOUT else self._stderr
                if dropped := output.add(piece):
                    metrics.SANDBOXES_OUTPUT_DROPPED.inc(dropped)
                    if self._limits.end_at_output_limit:
                        self._kill_for(process_pb2.EXIT_CAUSE_OUTPUT_LIMIT)
                self._notify()
        except MeshError as error:
            _LOGGER.debug("the output of process %s ended early: %s", self.id, error)

    def _kill_for(self, cause: _Cause.ValueType) -> None:
        if self._killed_for is None and not self.ended:
            self._killed_for = cause
            self._killing = self._in_background(self._kill())

    async def _kill(self) -> None:
        try:
            async with asyncio.timeout(_KILL_S):
                await self._running.signal(signal.SIGKILL, descendants=True)
                await self._gone.wait()
        except TimeoutError:
            self._on_stuck()
        except MeshError as error:
            _LOGGER.warning("process %s could not be killed: %s", self.id, error)
            self._on_stuck()

    def _exit(self, ended: ProcessEnded) -> process_pb2.ProcessExit:
        found = process_pb2.ProcessExit(
            cause=self._cause(ended),
            signal=ended.signal,
            stdout_bytes=self._stdout.written,
            stderr_bytes=self._stderr.written,
            stdout_dropped=self._stdout.dropped,
            stderr_dropped=self._stderr.dropped,
            duration_us=round((self._timers.clock.now() - self._started) * _MICROSECONDS),
        )
        if found.cause == process_pb2.EXIT_CAUSE_EXITED and ended.exit_code is not None:
            found.exit_code = ended.exit_code
        return found

    def _cause(self, ended: ProcessEnded) -> _Cause.ValueType:
        if self._killed_for is not None:
            return self._killed_for
        if ended.out_of_memory:
            return process_pb2.EXIT_CAUSE_OUT_OF_MEMORY
        if ended.machine_out_of_memory:
            return process_pb2.EXIT_CAUSE_MACHINE_OUT_OF_MEMORY
        if ended.exit_code is not None:
            return process_pb2.EXIT_CAUSE_EXITED
        return process_pb2.EXIT_CAUSE_SIGNALED

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._notify()
        self._on_end(self)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _write(self, offset: int, content: bytes, close: bool) -> None:
        async with self._stdin_lock:
            known = self._stdin_written - offset
            if known < 0:
                problem = f"is {offset}, but only {self._stdin_written} bytes were written"
                raise field_invalid("offset", problem)
            rest = content[known:]
            if rest and self._stdin_closed:
                raise field_invalid("content", "was sent after the standard input was closed")
            if rest and not self.ended:
                await self._running.write(rest)
            self._stdin_written += len(rest)
            if close and not self._stdin_closed:
                self._stdin_closed = True
                await self._running.close_stdin()

    async def _give(self, content: bytes) -> None:
        with contextlib.suppress(MeshError):
            if content:
                await self._running.write(content)
            await self._running.close_stdin()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _event(**what: Any) -> process_pb2.ProcessEvent:
    return process_pb2.ProcessEvent(**what)
