"""The scheduling policy of a process, which only Linux lets us choose."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress


def batch_scheduling() -> AbstractContextManager[None]:
    """Inside, this thread does not preempt another process when something arrives for it.

    Each batch that arrives would else cut short the turn of another process: 6 % of the CPU time of
    two cells where processors are few. Threads and processes started inside inherit it; see
    `normal_scheduling`.

    A policy that was set from outside stays, and where none may be set all stays as it is.
    """
    return _changed("SCHED_OTHER", "SCHED_BATCH")


def normal_scheduling() -> AbstractContextManager[None]:
    """Takes that back inside, to start processes that must be prompt, such as a GPU's driver."""
    return _changed("SCHED_BATCH", "SCHED_OTHER")


@contextmanager
def _changed(old: str, new: str) -> Iterator[None]:
    """Where this thread's policy is the old one, it is the new one inside."""
    changed = _change(old, new)
    try:
        yield
    finally:
        if changed:
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
