"""The tasks of a run's attempts, in a group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, ValuesView
from typing import Final

from gymmesh_client.collect.attempts import AttemptInFlight
from gymmesh_client.collect.requests import RolloutRequest
from gymmesh_client.dispatch import Assignment

#: How long a task that was cancelled is waited for.
CANCEL_S: Final = 5.0


class Workers:
    """A task for each attempt. An asynchronous context manager, which ends when all tasks have.

    As asyncio.TaskGroup, with two differences. It does not wait for ever for a task that ignores
    its cancellation: see `leave_behind`. And what goes wrong in a task is raised as it is, by
    `wait` or at the end, where the other tasks are cancelled.
    """

    def __init__(self) -> None:
        self._attempts: dict[asyncio.Task[None], AttemptInFlight] = {}
        self._changed = asyncio.Event()
        self._error: BaseException | None = None

    @property
    def attempts(self) -> ValuesView[AttemptInFlight]:
        """The attempts whose tasks have not ended."""
        return self._attempts.values()

    def start(
        self,
        assignment: Assignment[RolloutRequest],
        work: Callable[[AttemptInFlight], Coroutine[None, None, None]],
    ) -> None:
        """Start the task that does the work of an attempt."""
        attempt = AttemptInFlight(assignment)
        task = asyncio.get_running_loop().create_task(work(attempt))
        self._attempts[task] = attempt
        task.add_done_callback(self._ended)

    def leave_behind(self) -> None:
        """Wait no more for attempts that were cancelled and have not ended."""
        for task, attempt in list(self._attempts.items()):
            if attempt.cancellable:
                attempt.left_behind = True
                del self._attempts[task]
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

    async def __aexit__(self, _kind: object, error: object, _traceback: object) -> None:
        try:
            while self._attempts and error is None:
                await self.wait()
            if error is None and self._error is not None:
                raise self._error
        finally:
            for task in self._attempts:
                task.cancel()
            if self._attempts:
                await asyncio.wait(list(self._attempts), timeout=CANCEL_S)
            for attempt in self._attempts.values():
                attempt.left_behind = True
            self._attempts.clear()

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._attempts.pop(task, None) is not None:  # else it was left behind
            self._error = self._error or error
        self.wake()
