"""The attempts of a run that are in flight, and their tasks, in a group."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Coroutine, ValuesView
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from gymmesh_client.attempt import AgentCall
from gymmesh_client.collector.requests import RolloutRequest
from gymmesh_client.dispatch import Assignment
from gymmesh_client.rollout import RolloutParts
from gymmesh_client.rows import FailedAttempt

T = TypeVar("T")

#: How long a task that was cancelled is waited for.
CANCEL_S: Final = 5.0


@dataclass(slots=True, eq=False)
class AttemptInFlight:
    """An attempt that an agent runs and whose outcome the collector then records.

    It may be cancelled while the agent runs it, and while its group is judged. In between, its
    outcome is being written to disk, and nothing cancels the write.

    Attributes:
        assignment: the dispatcher's assignment.
        call: the call to the agent, with its events so far; None before and after the call.
        cancelled: whether `cancel` was called and has neither taken effect nor been undone.
        due: when the call must have ended, on the monotonic clock.
        left_behind: whether the call ignored its cancellation, and the run ended without it.
        outcome: the outcome of the call; None before its end, and if it was cancelled.
        overdue: whether it was cancelled because its time was up.
        unwanted: whether its group was cancelled.
    """

    assignment: Assignment[RolloutRequest]
    call: AgentCall | None = None
    cancelled: bool = False
    due: float = math.inf
    left_behind: bool = False
    outcome: RolloutParts | FailedAttempt | None = None
    overdue: bool = False
    unwanted: bool = False
    # While it may be cancelled: the task that `cancel` cancels.
    _task: asyncio.Task[Any] | None = field(default=None, init=False)

    @property
    def cancellable(self) -> bool:
        """Whether `cancel` takes effect at once."""
        return self._task is not None

    @property
    def awaits_group(self) -> bool:
        """Whether the outcome is a rollout that is to be judged with its group."""
        return isinstance(self.outcome, RolloutParts) and self.outcome.verification.awaits_group

    def take_parts(self) -> RolloutParts:
        """The rollout, to be recorded; the attempt lets go of it, since it is large."""
        parts, self.outcome, self.call = self.outcome, None, None
        assert isinstance(parts, RolloutParts)
        return parts

    async def while_cancellable(
        self, work: Callable[[], Awaitable[T]], cancelled: Callable[[], T]
    ) -> T:
        """The result of the work, or of `cancelled` if `cancel` ended the work.

        Raises CancelledError if anything else ended the work, or if the run no longer waits for it.
        After it returns, nothing is cancelled, and the effect of `cancel` is over.
        """
        task = self._task = asyncio.current_task()
        try:
            if self.cancelled:
                # A task that is cancelled before its first step never runs any of its own code.
                raise asyncio.CancelledError
            result = await work()
        except asyncio.CancelledError:
            if not self.cancelled or self.left_behind:
                raise
            result = cancelled()
        self._task = None
        if self.cancelled or self.overdue:
            self.cancelled = False
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # where a task has cancelled itself, it is raised here
            while task is not None and task.cancelling():
                task.uncancel()
        if self.left_behind:
            raise asyncio.CancelledError
        return result

    def cancel(self) -> None:
        """Cancel it, now or as soon as that may be."""
        self.cancelled = True
        if self._task is not None:
            self._task.cancel()

    def cancel_if_due(self, now: float) -> None:
        """Cancel the call if it has not ended in its time.

        Asked once a second of every attempt, which is cheaper than a timer for each.
        """
        if self.due <= now and not self.overdue and self._task is not None:
            self.overdue = True
            self._task.cancel()


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
