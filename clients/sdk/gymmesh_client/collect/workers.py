"""The tasks of a run, in a group."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Final

#: How long a task that was cancelled is waited for.
CANCEL_S: Final = 5.0


class Workers:
    """The tasks of a run. An asynchronous context manager, which ends when all of them have.

    As asyncio.TaskGroup, with two differences. It does not wait for ever for a task that ignores
    its cancellation: see `leave`. And what goes wrong in a task is raised as it is, by `wait` or
    at the end, where the other tasks are cancelled.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._error: BaseException | None = None

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def leave(self, task: asyncio.Task[None]) -> None:
        """Wait for this task no more."""
        self._tasks.discard(task)
        self.wake()

    def wake(self) -> None:
        """Let `wait` return: something changed."""
        self._changed.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until `wake` is called or a task ends, for at most so many seconds.

        Raises what went wrong in a task.
        """
        if self._error is None:
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                return
            self._changed.clear()
        if self._error is not None:
            raise self._error

    async def __aenter__(self) -> Workers:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            while self._tasks and error is None:
                await self.wait()
            if error is None and self._error is not None:
                raise self._error
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=CANCEL_S)
            self._tasks.clear()

    def _ended(self, task: asyncio.Task[None]) -> None:
        # One that was left behind has nothing to say any more.
        error = None if task.cancelled() else task.exception()
        if task in self._tasks:
            self._tasks.discard(task)
            self._error = self._error or error
        self.wake()
