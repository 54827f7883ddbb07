"""The tasks of a collector's flights, each of which may carry out one flight after another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from gymmesh_client.flight import Flight


class Workers:
    """The tasks, in the event loop that is running.

    Args:
        ended: called with a flight whose task has ended before its row was being written, and
            with what went wrong.
    """

    def __init__(self, ended: Callable[[Flight, BaseException | None], None]) -> None:
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        # What each carries out; None: nothing any more.
        self._carried: dict[asyncio.Task[None], Flight | None] = {}

    def start(self, flight: Flight, work: Coroutine[None, None, None]) -> None:
        """Do something for a flight, in a task of its own."""
        task = flight.task = self._loop.create_task(work)
        self._carried[task] = flight
        task.add_done_callback(self._worked)

    def follow(self, over: Flight, following: Flight | None) -> None:
        """The task of a flight that is over, but for its row, carries out this one, or nothing."""
        task, over.task = over.task, None
        assert task is not None
        self._carried[task] = following
        if following is not None:
            following.task = task

    def _worked(self, task: asyncio.Task[None]) -> None:
        flight = self._carried.pop(task)
        if flight is not None and not flight.writing:
            self._ended(flight, None if task.cancelled() else task.exception())
