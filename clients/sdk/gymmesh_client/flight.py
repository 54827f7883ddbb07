"""A rollout that a collector has under way."""

from __future__ import annotations

import asyncio

from gymmesh_client.attempt import Attempt
from gymmesh_client.dispatch import Assignment
from gymmesh_client.order import Job


class Flight:
    """A rollout in flight, and then on its way to disk."""

    __slots__ = (
        "assignment",
        "attempt",
        "concluded",
        "left_behind",
        "may_cancel",
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
