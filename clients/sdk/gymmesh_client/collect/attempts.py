"""An attempt in flight: what may be cancelled of it, and when."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any

from gymmesh_client.attempt import AgentCall
from gymmesh_client.collect.requests import RolloutRequest
from gymmesh_client.dispatch import Assignment
from gymmesh_client.rollout import RolloutParts
from gymmesh_client.rows import FailedAttempt


class AttemptInFlight:
    """An attempt that an agent runs, and whose outcome is then recorded.

    It may be cancelled while the agent runs it, and while its group is judged. In between it has
    an outcome that is on its way to disk, and nothing cancels that.

    Attributes:
        assignment: what the dispatcher assigned.
        call: the call to the agent, with what has come of it; None before and after it.
        cancellable: whether `cancel` takes effect at once.
        cancelled: whether `cancel` was called, and is still to take effect or be taken back.
        due: when the call must have ended, on the monotonic clock.
        left_behind: whether it ignored its cancellation, and the run has ended without it.
        outcome: what came of the call; None before that, and where it was cancelled.
        overdue: whether it was cancelled since it was due.
        unwanted: whether its group was cancelled.
    """

    __slots__ = (
        "_task",
        "assignment",
        "call",
        "cancellable",
        "cancelled",
        "due",
        "left_behind",
        "outcome",
        "overdue",
        "unwanted",
    )

    def __init__(self, assignment: Assignment[RolloutRequest]) -> None:
        self.assignment = assignment
        self.call: AgentCall | None = None
        self.cancellable = False
        self.cancelled = False
        self.due = math.inf
        self.left_behind = False
        self.outcome: RolloutParts | FailedAttempt | None = None
        self.overdue = False
        self.unwanted = False
        self._task: asyncio.Task[Any] | None = None

    @property
    def awaits_group(self) -> bool:
        """Whether the outcome is a rollout that is to be judged with its group."""
        return isinstance(self.outcome, RolloutParts) and self.outcome.verification.awaits_group

    def take_parts(self) -> RolloutParts:
        """The rollout, to be recorded; the attempt lets go of it, since it is large."""
        parts, self.outcome, self.call = self.outcome, None, None
        assert isinstance(parts, RolloutParts)
        return parts

    def allow_cancel(self) -> None:
        """From here on `cancel` cancels the running task.

        Raises CancelledError if it was called before: a task that is cancelled before its first
        step would never run any of its own code.
        """
        self._task, self.cancellable = asyncio.current_task(), True
        if self.cancelled:
            raise asyncio.CancelledError

    async def forbid_cancel(self) -> None:
        """From here on nothing is cancelled. What `cancel` did is over: the task may go on."""
        self.cancellable = False
        if self.cancelled or self.overdue:
            self.cancelled = False
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # where a task has cancelled itself, it is raised here
            while self._task is not None and self._task.cancelling():
                self._task.uncancel()

    def cancel(self) -> None:
        """Cancel it, now or as soon as that may be."""
        self.cancelled = True
        if self.cancellable and self._task is not None:
            self._task.cancel()

    def cancel_if_due(self, now: float) -> None:
        """Cancel the call if it has not ended in its time.

        Asked once a second of every attempt, which is cheaper than a timer for each.
        """
        if self.due <= now and self.cancellable and not self.overdue and self._task is not None:
            self.overdue = True
            self._task.cancel()
