"""Runs blocking code in threads, so that it does not block the event loop.

Invariant: a caller that stops waiting frees its place at once, even if its thread still runs.

The standard library's executor waits for its threads when the process ends, so one tool that
hangs would keep the process from ending; and a thread that hangs would keep its place for ever.
The threads here are daemons, and one whose caller gave up ends after its job.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any


class ThreadsBusy(Exception):
    """No thread was free in time; nothing was run."""


class ThreadsLost(Exception):
    """All threads hang in calls that their callers gave up."""


class _Job:
    """One call and the future that its outcome goes to."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.context = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Any] = self.loop.create_future()
        self.ended = threading.Event()

    def run(self) -> None:
        try:
            result, error = self.context.run(self.call), None
        except BaseException as raised:
            result, error = None, raised
        self.ended.set()
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
            self.loop.call_soon_threadsafe(self._finish, result, error)

    def _finish(self, result: Any, error: BaseException | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(result)
        elif isinstance(error, StopIteration | SystemExit | KeyboardInterrupt):
            # A future cannot carry the first, and the others would end the event loop.
            wrapped = RuntimeError(f"{type(error).__name__} raised in a thread")
            wrapped.__cause__ = error
            self.done.set_exception(wrapped)
        else:
            self.done.set_exception(error)


class _Thread:
    """A thread that runs one job after another until it is ended."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        threading.Thread(target=self._main, name="gymmesh-sync", daemon=True).start()

    def give(self, job: _Job | None) -> None:
        self._jobs.put(job)

    def _main(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            del job  # holds no session while waiting for the next


class Threads:
    """At most `limit` calls at a time, and at most `limit` further calls that were given up."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._places = asyncio.Semaphore(limit)
        self._idle: list[_Thread] = []
        self._lost: list[_Job] = []

    @contextlib.asynccontextmanager
    async def place(self, wait_s: float) -> AsyncIterator[None]:
        """The right to one `run` at a time; waits for it up to `wait_s` seconds.

        Raises `ThreadsBusy` and `ThreadsLost`.
        """
        if self._lost:
            self._lost = [job for job in self._lost if not job.ended.is_set()]
        if len(self._lost) >= self._limit:
            raise ThreadsLost(
                f"All threads ({len(self._lost)}) are still busy with calls whose callers gave up "
                "waiting."
            )
        try:
            async with asyncio.timeout(wait_s):
                await self._places.acquire()
        except TimeoutError:
            raise ThreadsBusy(f"No thread was free for {wait_s} seconds.") from None
        try:
            yield
        finally:
            self._places.release()

    async def run(self, call: Callable[[], Any]) -> Any:
        """The result of `call()`, inside of a `place`; what it raises is raised here.

        Takes as long as the call does: bound it outside. Cancelling gives the call up; a thread
        can't be stopped.
        """
        thread = self._idle.pop() if self._idle else _Thread()
        job = _Job(call)
        thread.give(job)
        try:
            return await job.done
        finally:
            if job.ended.is_set():
                self._idle.append(thread)
            else:
                self._lost.append(job)
                thread.give(None)

    def close(self) -> None:
        """End the idle threads; one that hangs is left to end with the process."""
        while self._idle:
            self._idle.pop().give(None)
