"""When the system lets this process have a processor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def wait_for_turn() -> None:
    """Have this thread, when something comes for it, wait until the running one's turn is over.

    Else each answer and each batch that arrives may cut short the turn of another process, be it
    the next cell: a switch for a few events, and caches to fill anew each time. Waited a few
    milliseconds, more events are there to be handled in one go. Where a processor is free
    nothing changes. Threads and processes started from here do likewise; see `usual_turns`.

    A policy that was set from outside stays, and where none may be set all stays as it is.
    """
    if hasattr(os, "SCHED_BATCH"):
        _change(os.SCHED_OTHER, os.SCHED_BATCH)


@contextmanager
def usual_turns() -> Iterator[None]:
    """For starting processes inside that do not wait for their turn: those that drive a GPU."""
    if not hasattr(os, "SCHED_BATCH") or not _change(os.SCHED_BATCH, os.SCHED_OTHER):
        yield
        return
    try:
        yield
    finally:
        _change(os.SCHED_OTHER, os.SCHED_BATCH)


def _change(old: int, new: int) -> bool:
    """Whether this thread's policy was the old one, and now is the new one."""
    with suppress(OSError):
        if os.sched_getscheduler(0) == old:
            os.sched_setscheduler(0, new, os.sched_param(0))
            return True
    return False
