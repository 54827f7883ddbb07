"""When a process has its turn on a processor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def patient_turns() -> Iterator[None]:
    """Inside, this thread waits, when something comes for it, until the running one's turn is over.

    Else each answer and each batch that arrives may cut short the turn of another process, be it
    the next cell: a switch for a few events, and caches to fill anew each time. Waited a few
    milliseconds, more events are there to be handled in one go. Where a processor is free
    nothing changes. Threads and processes started inside do likewise; see `usual_turns`.

    A policy that was set from outside stays, and where none may be set all stays as it is.
    """
    with _changed("SCHED_OTHER", "SCHED_BATCH"):
        yield


@contextmanager
def usual_turns() -> Iterator[None]:
    """Takes that back inside, for starting processes that are to be prompt: who drives a GPU."""
    with _changed("SCHED_BATCH", "SCHED_OTHER"):
        yield


@contextmanager
def _changed(old: str, new: str) -> Iterator[None]:
    """Where this thread's policy is the old one, it is the new one inside."""
    if not _change(old, new):
        yield
        return
    try:
        yield
    finally:
        _change(new, old)


def _change(old: str, new: str) -> bool:
    """Whether this thread's policy was the old one, and now is the new one.

    Policies go by the names of their constants in `os`, which only Linux has.
    """
    if not hasattr(os, "SCHED_BATCH"):
        return False
    with suppress(OSError):
        if os.sched_getscheduler(0) == getattr(os, old):
            os.sched_setscheduler(0, getattr(os, new), os.sched_param(0))
            return True
    return False
