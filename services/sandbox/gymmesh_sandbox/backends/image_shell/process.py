"""A process in a sandbox, under a shell that reports how it ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Final

from gymmesh_sandbox.backends.base import ProcessEnded, RunningProcess, Stream
from gymmesh_sandbox.backends.image_shell.end_mark import EndMark
from gymmesh_sandbox.backends.image_shell.process_end import BY_SIGNAL, ended_with, seen
from gymmesh_sandbox.backends.image_shell.programs import ProgramLost, StartedProgram
from gymmesh_sandbox.backends.image_shell.signals import Signals, SignalTarget
from gymmesh_sandbox.errors import sandbox_lost

_SIGKILL: Final = 9
_LAST_OUTPUT_S: Final = 0.5
_WAITING_PIECES: Final = 16


class ShellProcess(RunningProcess):
    """A process that was started, and the shell above it that reports how it ended.

    Args:
        first: the output that was already read.
        mark: finds the end on standard error.
        alone: the process; `tree`: the shell, from which all its processes descend.
        sandbox_runs: returns whether the sandbox is known to run, so that its end did not end the
            process.
        on_end: called when the end is known.
    """

    def __init__(
        self,
        sandbox_id: str,
        program: StartedProgram,
        first: list[tuple[Stream, bytes]],
        *,
        mark: EndMark,
        alone: SignalTarget,
        tree: SignalTarget,
        signals: Signals,
        sandbox_runs: Callable[[], Awaitable[bool]],
        on_end: Callable[[ShellProcess], None],
    ) -> None:
        self.tree = tree
        self._sandbox_id = sandbox_id
        self._program = program
        self._first = first
        self._mark = mark
        self._alone = alone
        self._signals = signals
        self._sandbox_runs = sandbox_runs
        self._on_end = on_end
        self._pieces: asyncio.Queue[tuple[Stream, bytes] | None] = asyncio.Queue(_WAITING_PIECES)
        self._unread = False
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[ProcessEnded] = loop.create_future()
        self._ended.add_done_callback(seen)
        self._reading = loop.create_task(self._read())

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        try:
            while (piece := await self._pieces.get()) is not None:
                yield piece
        finally:
            self._unread = True
            while not self._pieces.empty():
                self._pieces.get_nowait()

    async def write(self, data: bytes) -> None:
        if self._ended.done():
            return
        # What the process no longer reads would be waited for until its end.
        writing = asyncio.ensure_future(self._program.send(data))
        try:
            await asyncio.wait((writing, self._ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            writing.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await writing

    async def close_stdin(self) -> None:
        if not self._ended.done():
            with contextlib.suppress(OSError):
                await self._program.end_stdin()

    async def signal(self, number: int, *, descendants: bool) -> None:
        if not self._ended.done():
            target = self.tree if descendants else self._alone
            await self._signals.send(target, number, with_descendants=descendants)

    async def wait(self) -> ProcessEnded:
        return await asyncio.shield(self._ended)

    async def give_up(self) -> None:
        """Its sandbox has ended."""
        self._reading.cancel()
        await asyncio.wait((self._reading,))

    async def _read(self) -> None:
        try:
            for stream, data in self._first:
                await self._take(stream, data)
            loop = asyncio.get_running_loop()
            with contextlib.suppress(OSError):
                async with asyncio.timeout(None) as bound:
                    while (read := await self._program.read()) is not None:
                        await self._take(*read)
                        if self._mark.numbers is not None and bound.when() is None:
                            await self._settle()
                            # A descendant may hold the streams open, and write on.
                            bound.reschedule(loop.time() + _LAST_OUTPUT_S)
            await self._settle()
            await self._program.close()
            await self._put(Stream.STDERR, self._mark.rest())
            await self._pieces.put(None)
        except asyncio.CancelledError:
            self._unread = True
            while not self._pieces.empty():
                self._pieces.get_nowait()
            self._pieces.put_nowait(None)
            self._lose()
            await self._program.close()
            raise
        finally:
            self._on_end(self)

    async def _take(self, stream: Stream, data: bytes) -> None:
        own = self._mark.take(data) if stream is Stream.STDERR else data
        await self._put(stream, own)

    async def _put(self, stream: Stream, data: bytes) -> None:
        if data and not self._unread:
            await self._pieces.put((stream, data))

    async def _settle(self) -> None:
        """Sets how the process ended, as far as that is known now."""
        if self._ended.done():
            return
        if self._mark.numbers is not None:
            code, before, after = self._mark.numbers
            oom = after > before
        else:
            # The shell ended without the mark: by a signal, or with its sandbox.
            oom = False
            try:
                code = self._program.exit_code()
            except ProgramLost:
                code = 0
            if code <= BY_SIGNAL:
                self._lose()
                return
        meaning = ended_with(code)
        if meaning.signal == _SIGKILL:
            meaning = replace(meaning, out_of_memory=oom)
        if meaning.signal == _SIGKILL and not await self._sandbox_runs():
            self._lose()
        elif not self._ended.done():
            self._ended.set_result(meaning)

    def _lose(self) -> None:
        if not self._ended.done():
            cause = "the sandbox ended, or the connection to the sandbox broke"
            self._ended.set_exception(sandbox_lost(self._sandbox_id, cause))
