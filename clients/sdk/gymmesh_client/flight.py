"""A rollout that a collector has under way."""

from __future__ import annotations

import asyncio
import math

from gymmesh_client.attempt import Attempt
from gymmesh_client.dispatch import Assignment
from gymmesh_client.order import Job


class Flight:
    """A rollout in flight, and then on its way to disk."""

    __slots__ = (
        "assignment",
        "attempt",
        "concluded",
        "due",
        "left_behind",
        "may_cancel",
        "overdue",
        "task",
        "unwanted",
        "writing",
    )

    def __init__(self, assignment: Assignment[Job]) -> None:
        self.assignment = assignment
        self.attempt: Attempt | None = None
        self.task: asyncio.Task[None] | None = None
        #: Whether the dispatcher knows how it ended.
        self.concluded = False
        #: When its attempt must have ended, on the monotonic clock; see `cut_off_if_due`.
        self.due = math.inf
        #: Whether its attempt was cancelled because it had not.
        self.overdue = False
        #: Whether it may be cancelled; else it has an outcome, which is being written.
        self.may_cancel = True
        #: Whether it did not heed its cancellation; the files are closed by now.
        self.left_behind = False
        #: Whether its group was cancelled.
        self.unwanted = False
        #: Whether its row is on the way to disk, and nothing else is to be done for it.
        self.writing = False

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
