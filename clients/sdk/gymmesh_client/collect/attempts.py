"""An attempt in flight: what may be cancelled of it, and when."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from gymmesh_client.attempt import AgentCall
from gymmesh_client.collect.requests import RolloutRequest
from gymmesh_client.dispatch import Assignment


class AttemptInFlight:
    """An attempt that an agent runs, and whose outcome is then recorded.

    It may be cancelled while the agent runs it, and while its group is judged. In between it has
    an outcome that is on its way to disk, and nothing cancels that.

    Attributes:
        assignment: what the dispatcher assigned.
        call: the call to the agent, with what has come of it; None before it was made.
        cancelled: whether `cancel` was called.
        left_behind: whether it ignored its cancellation, and the run has ended without it.
        unwanted: whether its group was cancelled.
    """

    __slots__ = (
        "_cancellable",
        "_task",
        "assignment",
        "call",
        "cancelled",
        "left_behind",
        "unwanted",
    )

    def __init__(self, assignment: Assignment[RolloutRequest]) -> None:
        self.assignment = assignment
        self.call: AgentCall | None = None
        self.cancelled = False
        self.left_behind = False
        self.unwanted = False
        self._task: asyncio.Task[Any] | None = None
        self._cancellable = False

    @property
    def cancellable_task(self) -> asyncio.Task[Any] | None:
        """The task that may be cancelled for it now; None: nothing may."""
        return self._task if self._cancellable else None

    def allow_cancel(self) -> None:
        """From here on `cancel` cancels the running task.

        Raises CancelledError if it was called before: a task that is cancelled before its first
        step would never run any of its own code.
        """
        self._task, self._cancellable = asyncio.current_task(), True
        if self.cancelled:
            raise asyncio.CancelledError

    async def forbid_cancel(self) -> None:
        """From here on nothing is cancelled. What `cancel` did is over: the task may go on."""
        self._cancellable = False
        if self.cancelled:
            self.cancelled = False
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # where a task has cancelled itself, it is raised here
            while self._task is not None and self._task.cancelling():
                self._task.uncancel()

    def cancel(self) -> None:
        """Cancel it, now or as soon as that may be."""
        self.cancelled = True
        if self._cancellable and self._task is not None:
            self._task.cancel()
