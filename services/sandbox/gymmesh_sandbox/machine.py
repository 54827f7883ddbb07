"""How much of the machine is free: memory, as the kernel and the control group report it, and
load.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from gymmesh_sandbox.admission import Pressure

_MEMINFO: Final = Path("/proc/meminfo")
# Of the service's own cgroup, of version 2 and of version 1: the folder, and the names in it of the
# limit, of the use, and of the part of the use that the kernel gives back when it is short.
_CGROUPS: Final = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"),
    (
        Path("/sys/fs/cgroup/memory"),
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)


def pressure() -> Pressure:
    """How much is free now. If the system does not report a value, it counts as free."""
    return Pressure(min(_free_memory(), _free_in_cgroup()), _load())


def _free_memory() -> float:
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
        found = {line.partition(":")[0]: int(line.split()[1]) for line in lines}
        return found["MemAvailable"] / found["MemTotal"]
    except (OSError, ValueError, KeyError, IndexError):  # not Linux
        return 1.0


def _free_in_cgroup() -> float:
    for folder, limit_name, use_name, cache_name in _CGROUPS:
        try:
            limit = int((folder / limit_name).read_text(encoding="ascii"))
            used = int((folder / use_name).read_text(encoding="ascii"))
            lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
            stat = dict(line.split() for line in lines)
            return min(1.0, max(0.0, 1.0 - (used - int(stat[cache_name])) / limit))
        except (OSError, ValueError, KeyError):  # no such file, or "max"
            continue
    return 1.0


def _load() -> float:
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        return 0.0
