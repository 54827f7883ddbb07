"""A rollout that a collector has under way."""

from __future__ import annotations

import asyncio
import math

import msgspec

from gymmesh_client.attempt import Attempt
from gymmesh_client.dispatch import Assignment
from gymmesh_client.order import Job


class Flight(msgspec.Struct, eq=False):
    """A rollout in flight, and then on its way to disk.

    Attributes:
        concluded: whether the dispatcher knows how it ended.
        due: when its attempt must have ended, on the monotonic clock; see `cut_off_if_due`.
        overdue: whether its attempt was cancelled because it had not.
        may_cancel: whether it may be cancelled; else it has an outcome, which is being written.
        left_behind: whether it did not heed its cancellation; the files are closed by now.
        unwanted: whether its group was cancelled.
        writing: whether its row is on the way to disk, and nothing else is to be done for it.
    """

    # A Struct, as each rollout makes one.

    assignment: Assignment[Job]
    attempt: Attempt | None = None
    task: asyncio.Task[None] | None = None
    concluded: bool = False
    due: float = math.inf
    overdue: bool = False
    may_cancel: bool = True
    left_behind: bool = False
    unwanted: bool = False
    writing: bool = False

    def cancel(self) -> None:
        """Cancel what it does, where that may be."""
        if self.may_cancel and self.task is not None:
            self.task.cancel()

    def cut_off_if_due(self, now: float) -> None:
        """Cancel an attempt that has not ended in its time; asked now and then for all flights,
        which is cheaper than a timer for each.
        """
        if self.due <= now and not (self.concluded or self.overdue) and self.task is not None:
            self.overdue = True
            self.task.cancel()

    def was_cut_off(self) -> bool:
        """Whether it was `cut_off_if_due` that cancelled its attempt, and nobody else; the task may
        go on then.
        """
        return self.overdue and self.task is not None and not self.task.uncancel()
