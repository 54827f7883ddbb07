"""A process in a container, started by the API's exec."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from aiodocker.containers import DockerContainer
from aiodocker.execs import Exec
from aiodocker.stream import Message
from aiodocker.stream import Stream as ExecStream

from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.base import ProcessEnded, RunningProcess, Stream
from gymmesh_sandbox.backends.docker.engine import FAILURES, container_error
from gymmesh_sandbox.backends.docker.shell import close_stream, exit_code, send
from gymmesh_sandbox.backends.image_shell.process_end import ended_with, seen
from gymmesh_sandbox.backends.image_shell.signals import Signals, SignalTarget
from gymmesh_sandbox.errors import sandbox_lost

_STDOUT: Final = 1
_SIGKILL: Final = 9
_POLL_S: Final = 0.4
_WRITTEN_S: Final = 0.02
_LAST_OUTPUT_S: Final = 0.5


class StandardInput:
    """A named pipe in the container that a process reads.

    The API could carry standard input itself. But Podman loses output of processes that end before
    they have read all of their input.

    Args:
        path: the pipe's path.
        holder: the number of the process that keeps the pipe open.
        release: ends the processes with these numbers and removes the pipe.
    """

    def __init__(
        self,
        container: DockerContainer,
        path: str,
        holder: int,
        release: Callable[[Sequence[int]], Awaitable[None]],
    ) -> None:
        self._container = container
        self._path = path
        # Each is ended once: another process may get its number.
        self._to_end = [holder]
        self._release = release
        self._writer: _Writer | None = None
        self._closed = False
        self._dropped = asyncio.Event()

    async def write(self, data: bytes) -> None:
        """Writes; data that the process no longer reads is dropped."""
        if self._writer is None and not self._closed:
            self._writer = await _Writer.start(self._container, self._path)
            self._to_end.append(self._writer.pid)
            if self._dropped.is_set():  # the process ended meanwhile
                await self._end()
        if self._writer is not None and not self._closed:
            with contextlib.suppress(ConnectionError):
                await send(self._writer.stream, data)

    async def close(self) -> None:
        """Closes it after the pipe has accepted everything."""
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            await close_stream(self._writer.stream)
            while not self._dropped.is_set() and (await self._writer.exec.inspect())["Running"]:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._dropped.wait(), _WRITTEN_S)
            if not self._dropped.is_set() and self._writer.pid in self._to_end:
                self._to_end.remove(self._writer.pid)  # it has ended by itself
        await self._end()

    async def drop(self) -> None:
        """The process has ended: closes the pipe without waiting."""
        self._dropped.set()
        self._closed = True
        await self._end()

    async def _end(self) -> None:
        if self._writer is not None:
            await close_stream(self._writer.stream)
        pids, self._to_end = self._to_end, []
        if pids:
            with contextlib.suppress(MeshError):
                await self._release(pids)


@dataclass(frozen=True, slots=True)
class _Writer:
    """A process that copies its input to the pipe. It blocks while the pipe is full."""

    exec: Exec
    stream: ExecStream
    pid: int

    @classmethod
    async def start(cls, container: DockerContainer, path: str) -> _Writer:
        argv = ["/bin/sh", "-c", 'echo $$; exec cat >"$1"', "sh", path]
        found = await container.exec(argv, stdin=True, user="0", workdir="/")
        stream = found.start()
        try:
            await stream.__aenter__()
            message = await stream.read_out()
            pid = message.data.strip() if message is not None else b""
            if not pid.isdigit():
                raise ConnectionResetError("the container cannot start another process")
            return cls(found, stream, int(pid))
        except BaseException:
            await close_stream(stream)
            raise


class DockerProcess(RunningProcess):
    """A process that was started.

    Args:
        first: the output that was already read.
        out_of_memory: returns whether the kernel ended a process at the memory limit meanwhile.
        sandbox_ended: returns whether its container has ended, which may have ended the process.
        on_end: called when its output has been read to the end.
    """

    def __init__(
        self,
        sandbox_id: str,
        found: Exec,
        stream: ExecStream,
        first: list[Message],
        *,
        target: SignalTarget,
        stdin: StandardInput,
        signals: Signals,
        out_of_memory: Callable[[], Awaitable[bool]],
        sandbox_ended: Callable[[], Awaitable[bool]],
        on_end: Callable[[DockerProcess], None],
    ) -> None:
        self.target = target
        self._sandbox_id = sandbox_id
        self._exec = found
        self._stream = stream
        self._first = first
        self._stdin = stdin
        self._signals = signals
        self._out_of_memory = out_of_memory
        self._sandbox_ended = sandbox_ended
        self._on_end = on_end
        self._output_ended = asyncio.Event()
        self._life = asyncio.get_running_loop().create_task(self._live())
        self._life.add_done_callback(seen)

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        for read in self._first:
            yield _piece(read)
        self._first = []
        reading: asyncio.Future[Message | None] | None = None
        clock, last = asyncio.get_running_loop().time, 0.0
        try:
            while True:
                reading = reading or asyncio.ensure_future(self._stream.read_out())
                await asyncio.wait((reading, self._life), return_when=asyncio.FIRST_COMPLETED)
                if self._life.done():
                    # A descendant may hold the streams open, and write on.
                    last = last or clock() + _LAST_OUTPUT_S
                    await asyncio.wait((reading,), timeout=max(0.0, last - clock()))
                    if not reading.done():
                        return
                try:
                    message = reading.result()
                except FAILURES:
                    return
                reading = None
                if message is None:
                    return
                yield _piece(message)
        finally:
            self._output_ended.set()
            if reading is not None:
                reading.cancel()
            await close_stream(self._stream)
            self._on_end(self)

    async def write(self, data: bytes) -> None:
        with contextlib.suppress(*FAILURES):
            if not self._life.done():
                await self._stdin.write(data)

    async def close_stdin(self) -> None:
        with contextlib.suppress(*FAILURES):
            await self._stdin.close()

    async def signal(self, number: int, *, descendants: bool) -> None:
        if not self._life.done():
            await self._signals.send(self.target, number, with_descendants=descendants)

    async def wait(self) -> ProcessEnded:
        return await asyncio.shield(self._life)

    async def give_up(self) -> None:
        """Its sandbox has ended."""
        self._life.cancel()
        with contextlib.suppress(asyncio.CancelledError, MeshError):
            await self._life
        await close_stream(self._stream)

    async def _live(self) -> ProcessEnded:
        try:
            # The stream ends with the process, unless a descendant holds it open.
            while (state := await self._exec.inspect())["Running"]:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._output_ended.wait(), _POLL_S)
                    break
            code = state["ExitCode"] if not state["Running"] else None
            if code is None:
                code = await exit_code(self._exec)
            await self._stdin.drop()
            return await self._ended(int(code))
        except TimeoutError:
            raise container_error(ConnectionError(), self._sandbox_id) from None
        except FAILURES as error:
            raise container_error(error, self._sandbox_id) from None

    async def _ended(self, code: int) -> ProcessEnded:
        ended = ended_with(code)
        if ended.signal != _SIGKILL:
            return ended
        if await self._sandbox_ended():
            raise sandbox_lost(self._sandbox_id, "its container ended")
        return replace(ended, out_of_memory=await self._out_of_memory())


def _piece(message: Message) -> tuple[Stream, bytes]:
    return (Stream.STDOUT if message.stream == _STDOUT else Stream.STDERR), message.data
