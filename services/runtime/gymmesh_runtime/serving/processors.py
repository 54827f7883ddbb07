"""How many processors a process may use."""

from __future__ import annotations

import os


def usable_processors() -> int:
    """How many processors this process may run on. The machine may have more."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
