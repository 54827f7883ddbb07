"""What a process and its descendants use: CPU time and memory, from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def cpu_s(pids: Iterable[int]) -> float:
    """User and system seconds of processes so far, and of the children they have waited for."""
    return sum(sum(map(int, fields[11:15])) for one in pids if (fields := _stat(one))) / _TICKS


def cpu_clock_s(pid: int) -> float:
    """User and system seconds of a process so far, to the nanosecond, without its children.

    Counts on after its end until it is waited for. See clock_getcpuclockid(3): Linux makes the
    clock's number of the process's. Raises OSError when there is no such process.
    """
    return time.clock_gettime((~pid << 3) | 2)


def pss_mb(pids: Iterable[int]) -> float:
    """Proportional set size, MB of 1e6 bytes: a page that n processes share counts 1/n in each."""
    return sum(_pss_kib(one) for one in pids) * 1024 / 1e6


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the name, which may hold blanks; none when it ended."""
    try:
        # A name may hold any bytes.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _pss_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
