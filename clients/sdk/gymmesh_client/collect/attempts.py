"""An attempt in flight: what may be cancelled of it, and when."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gymmesh_client.attempt import AgentCall
from gymmesh_client.collect.requests import RolloutRequest
from gymmesh_client.dispatch import Assignment
from gymmesh_client.rollout import RolloutParts
from gymmesh_client.rows import FailedAttempt

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class AttemptInFlight:
    """An attempt that an agent runs, and whose outcome is then recorded.

    It may be cancelled while the agent runs it, and while its group is judged. In between it has
    an outcome that is on its way to disk, and nothing cancels that.

    Attributes:
        assignment: what the dispatcher assigned.
        call: the call to the agent, with what has come of it; None before and after it.
        cancelled: whether `cancel` was called, and is still to take effect or be taken back.
        due: when the call must have ended, on the monotonic clock.
        left_behind: whether it ignored its cancellation, and the run has ended without it.
        outcome: what came of the call; None before that, and where it was cancelled.
        overdue: whether it was cancelled since it was due.
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
        """What the work gives or, where `cancel` ends it, what `cancelled` does.

        Raises CancelledError where something else ended it, and where the run has gone on without
        it. Once this returns, nothing is cancelled, and what `cancel` did is over.
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
