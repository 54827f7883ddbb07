"""Control groups that bound the memory and the processes of a sandbox as a whole.

They can be used by a service that may make groups below its own, which is usually root's right.
Both versions of the interface are known (Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst
of the kernel).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gymmesh_resource.sandbox.program import Limits

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_PREFIX = "gymmesh-sandbox-"
_CONTROLLERS = ("memory", "pids", "cpu")
# Files of each version of the interface: those of a program's limits, and what all programs share.
_LIMITS = {
    1: {"memory": "memory.limit_in_bytes", "pids": "pids.max"},
    2: {"memory": "memory.max", "pids": "pids.max"},
}
# Half of the default share of the CPU, so that programs yield to services, and one processor at
# most, in microseconds of each tenth of a second, so that others are left.
_SHARES = {
    1: {"cpu.shares": "512", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "100000"},
    2: {"cpu.weight": "50", "cpu.max": "100000 100000"},
}


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One group, as the folder of each controller; version 2 has one folder for all."""

    folders: tuple[tuple[str, Path], ...]
    version: int

    @property
    def members(self) -> list[Path]:
        """The files that a process writes "0" to in order to join."""
        return list(dict.fromkeys(folder / "cgroup.procs" for _, folder in self.folders))

    def limit(self, limits: Limits) -> None:
        """Set the limits of the next program. Raises OSError."""
        # The launcher's own processes count too: four at most.
        values = {"memory": limits.memory_bytes, "pids": limits.processes + 4}
        for controller, folder in self.folders:
            if controller in values:
                file = folder / _LIMITS[self.version][controller]
                file.write_text(str(values[controller]))

    def share(self) -> None:
        """Set what is the same for all programs. Raises OSError."""
        for controller, folder in self.folders:
            if controller == "cpu":
                for name, share in _SHARES[self.version].items():
                    (folder / name).write_text(share)

    def kill(self) -> bool:
        """Kill what is still in the group; returns whether it was empty."""
        empty = True
        for member in self.members:
            for pid in member.read_text().split():
                empty = False
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        return empty

    def remove(self) -> None:
        """Kill what is left and remove the group, within a second; best effort."""
        end = time.monotonic() + 1.0
        with contextlib.suppress(OSError):
            while not self.kill() and time.monotonic() < end:
                time.sleep(0.005)
        for folder in dict.fromkeys(folder for _, folder in self.folders):
            with contextlib.suppress(OSError):
                folder.rmdir()


def make_group(slot: int, *, root: Path = _ROOT, own: Path = _OWN) -> Cgroup | None:
    """A new group for one slot of this process, or None where groups cannot be used.

    `root`: where they are mounted. `own`: the list of the groups that this process is in.
    """
    parents = _parents(root, own)
    if not parents:
        return None
    version = 1 if len({path for _, path in parents}) > 1 else 2
    name = f"{_PREFIX}{_pid_space()}-{os.getpid()}-{slot}"
    group = Cgroup(tuple((controller, path / name) for controller, path in parents), version)
    try:
        for folder in dict.fromkeys(folder for _, folder in group.folders):
            folder.mkdir(exist_ok=True)
        group.share()
        group.limit(Limits())
    except OSError:
        group.remove()
        return None
    return group


def remove_stale(*, root: Path = _ROOT, own: Path = _OWN) -> None:
    """Remove the groups of services that were killed and left them."""
    for _, parent in _parents(root, own):
        # Process ids of other spaces, as of containers that share the mount, mean nothing here.
        prefix = f"{_PREFIX}{_pid_space()}-"
        for folder in parent.glob(f"{prefix}*"):
            owner = folder.name.removeprefix(prefix).partition("-")[0]
            if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
                Cgroup((("any", folder),), 2).remove()


def _pid_space() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _parents(root: Path, own: Path) -> Sequence[tuple[str, Path]]:
    """The folder of this process for each controller; empty unless memory and pids are there."""
    found: dict[str, Path] = {}
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return ()
    for line in lines:
        _, names, path = line.split(":", 2)
        if names:
            for name in set(names.split(",")) & set(_CONTROLLERS):
                found[name] = _existing(root / name, path)
        elif (root / "cgroup.controllers").exists():
            folder = _existing(root, path)
            for name in _delegated(folder):
                found.setdefault(name, folder)
    return tuple(found.items()) if {"memory", "pids"} <= set(found) else ()


def _existing(mount: Path, path: str) -> Path:
    # In a container the path may be the one outside: the mount is then the own group.
    folder = mount / path.lstrip("/")
    return folder if folder.is_dir() else mount


def _delegated(folder: Path) -> set[str]:
    """The controllers that groups below a version 2 folder have, after asking for ours."""
    control = folder / "cgroup.subtree_control"
    for name in _CONTROLLERS:
        with contextlib.suppress(OSError):
            control.write_text(f"+{name}")
    try:
        return set(control.read_text().split()) & set(_CONTROLLERS)
    except OSError:
        return set()
