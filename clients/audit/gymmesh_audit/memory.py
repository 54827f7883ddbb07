"""The memory of a verdict: the peak growth of this process and its workers.

Linux reports the peak of a process and resets it on request. On other systems, memory is not
measured. A program that ends within the verdict, such as a program in a sandbox, is not counted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
# Resets the peak; see proc(5), clear_refs.
_RESET_PEAK: Final = "5"
_PEAK: Final = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)
_NOW: Final = re.compile(r"^VmRSS:\s+(\d+) kB", re.MULTILINE)


class PeakMemory:
    """The memory of this process and of the processes that it started, from `start` to
    `grown_bytes`.
    """

    def __init__(self) -> None:
        self._before: dict[int, int] = {}

    def start(self) -> None:
        """Begin to measure."""
        self._before = {}
        for pid in _family(os.getpid()):
            try:
                (_PROC / str(pid) / "clear_refs").write_text(_RESET_PEAK, encoding="ascii")
            except OSError:  # it ended, or the system has no such file
                continue
            if (now := _bytes(pid, _NOW)) is not None:
                self._before[pid] = now

    def grown_bytes(self) -> int | None:
        """The sum of the processes' growth at their peaks; None if it is not known."""
        peaks = {pid: _bytes(pid, _PEAK) for pid in self._before}
        grown = [
            max(peak - self._before[pid], 0) for pid, peak in peaks.items() if peak is not None
        ]
        return sum(grown) if grown else None


def _family(pid: int) -> Iterator[int]:
    """A process and those that descend from it."""
    yield pid
    try:
        for thread in (_PROC / str(pid) / "task").iterdir():
            for child in (thread / "children").read_text(encoding="ascii").split():
                yield from _family(int(child))
    except OSError:  # the process ended, or this is not Linux
        return


def _bytes(pid: int, field: re.Pattern[str]) -> int | None:
    try:
        found = field.search((_PROC / str(pid) / "status").read_text(encoding="ascii"))
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None
