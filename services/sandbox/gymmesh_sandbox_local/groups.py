"""Control groups: one for each sandbox, and in it one for each process that was started there.

The sandbox's group limits memory, processes and processor of all its processes together. A
process's group contains its descendants, whatever they do, so that they can be killed together. A
service can use groups if it may create them below its own group, which usually only root may. Both
versions of the interface are supported (Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst of
the kernel).
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_VMSTAT = Path("/proc/vmstat")
_PREFIX = "gymmesh-box-"
_CONTROLLERS = ("memory", "pids", "cpu")
_REMOVE_S = 5.0
_PERIOD_US = 100_000
_PROBES = itertools.count()
# What belongs to a sandbox and not to its programs: bubblewrap and the first process.
_OWN_PROCESSES = 2


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What all processes of a sandbox together may use; 0: no limit.

    yields: whether its processes get half the usual CPU share if others need the processor, too.
    """

    memory_bytes: int = 0
    pids: int = 0
    cpu_millis: int = 0
    yields: bool = False


@dataclass(frozen=True, slots=True)
class MemoryEvents:
    """The kernel's reports of memory shortage.

    limit_hits: how often the sandbox's own limit was reached. kills: how many processes were
    killed, at that limit or at a higher one, including the machine's memory.
    """

    limit_hits: int = 0
    kills: int = 0


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A process and its descendants."""

    folder: Path
    version: int

    def members(self) -> list[int]:
        """Their process ids."""
        try:
            return [int(pid) for pid in (self.folder / "cgroup.procs").read_text().split()]
        except OSError:
            return []

    def kill(self) -> None:
        """Kills the processes, without giving them a chance to fork meanwhile."""
        if self.version == 2:
            with contextlib.suppress(OSError):
                (self.folder / "cgroup.kill").write_text("1")
                return
        with contextlib.suppress(OSError):
            (self.folder / "pids.max").write_text("0")
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def remove(self) -> None:
        """Removes the group, unless processes are in it."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()


@dataclass(frozen=True, slots=True)
class SandboxGroup:
    """One sandbox's group: a folder for each controller; in version 2, one folder for all."""

    folders: Mapping[str, Path]
    version: int

    @property
    def join_files(self) -> list[str]:
        """The files to which a single-threaded process writes "0" to join the group."""
        return self._join(self.folders)

    def limit(self, limits: GroupLimits) -> None:
        """Sets the limits. Raises OSError."""
        for controller, folder in self.folders.items():
            for name, value in _settings(controller, limits, self.version).items():
                (folder / name).write_text(value)

    def process(self, number: int) -> tuple[ProcessGroup, list[str]]:
        """A group inside this group for one process, and the files to join it. Raises OSError."""
        folder = self.folders["pids"] / f"p{number}"
        folder.mkdir()
        if self.version == 2:
            return ProcessGroup(folder, 2), [str(folder / "cgroup.procs")]
        return ProcessGroup(folder, 1), self._join({**self.folders, "pids": folder})

    def memory_events(self) -> MemoryEvents:
        """The kernel's reports of memory shortage so far."""
        folder = self.folders["memory"]
        file = folder / ("memory.events" if self.version == 2 else "memory.oom_control")
        found = _counts(file)
        kills = found.get("oom_kill", 0)
        # Version 1 does not tell the limits above the sandbox's apart.
        return MemoryEvents(found.get("oom", 0) if self.version == 2 else kills, kills)

    def remove(self) -> bool:
        """Kills the remaining processes and removes the group, within seconds; returns whether
        it is gone.
        """
        gone = [_remove(folder) for folder in dict.fromkeys(self.folders.values())]
        return all(gone)

    def _join(self, folders: Mapping[str, Path]) -> list[str]:
        # In version 1, a thread moves itself without a lock that all processes of the machine take.
        name = "cgroup.procs" if self.version == 2 else "tasks"
        return list(dict.fromkeys(str(folder / name) for folder in folders.values()))


def memory_events_of_machine(file: Path = _VMSTAT) -> MemoryEvents:
    """The kernel's reports for the whole machine, for sandboxes without a group."""
    return MemoryEvents(kills=_counts(file).get("oom_kill", 0))


def _counts(file: Path) -> dict[str, int]:
    """The numbers in a kernel file with one name and number per line; empty if it cannot be
    read.
    """
    with contextlib.suppress(OSError, ValueError):
        lines = (line.split() for line in file.read_text().splitlines())
        return {line[0]: int(line[1]) for line in lines if len(line) == 2}
    return {}


class Groups:
    """The groups of one service instance, or of this process.

    `owner`: identifies the instance among others on this machine, so that a later process of it
    finds its groups. None: this process, see `remove_stale`. `root`: where groups are mounted.
    `own`: the list of the groups of this process.
    """

    def __init__(self, owner: str | None, *, root: Path = _ROOT, own: Path = _OWN) -> None:
        self._parents = _parents(root, own)
        self._version = 1 if len(set(self._parents.values())) > 1 else 2
        if owner is None:
            self._prefix = f"{_of_processes()}{os.getpid()}-"
        else:
            self._prefix = f"{_PREFIX}{hashlib.sha256(owner.encode()).hexdigest()[:16]}-"

    def usable(self) -> bool:
        """Whether a group can be created and limited here."""
        if not self._parents:
            return False
        try:
            limits = GroupLimits(memory_bytes=1 << 30, pids=64, cpu_millis=1000)
            group = self.make(f"probe{next(_PROBES)}", limits)
        except OSError:
            return False
        return group.remove()

    @property
    def bounds_cpu(self) -> bool:
        """Whether a processor limit can be set."""
        return "cpu" in self._parents

    def make(self, name: str, limits: GroupLimits) -> SandboxGroup:
        """A new group. If it raises OSError, it leaves no group."""
        folders = {key: path / f"{self._prefix}{name}" for key, path in self._parents.items()}
        group = SandboxGroup(folders, self._version)
        try:
            for folder in dict.fromkeys(folders.values()):
                folder.mkdir()
            group.limit(limits)
        except OSError:
            group.remove()
            raise
        return group

    def remove_stale(self) -> None:
        """Removes the groups of processes that are gone, for example after a SIGKILL."""
        prefix = _of_processes()
        for parent in set(self._parents.values()):
            for folder in parent.glob(f"{prefix}*"):
                owner = folder.name.removeprefix(prefix).partition("-")[0]
                if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
                    _remove(folder)

    def remove_all(self) -> int:
        """Removes the groups of the instance, with their processes; returns the number of
        sandboxes.
        """
        names = set()
        for parent in set(self._parents.values()):
            for folder in parent.glob(f"{self._prefix}*"):
                _remove(folder)
                names.add(folder.name)
        return len(names)


def _of_processes() -> str:
    # Process ids of other spaces, as of containers that share the mount, mean nothing here.
    return f"{_PREFIX}of-{os.stat('/proc/self/ns/pid').st_ino}-"


def _settings(controller: str, limits: GroupLimits, version: int) -> dict[str, str]:
    """The files of one controller and what to write to them."""
    if controller == "memory" and limits.memory_bytes:
        name = "memory.max" if version == 2 else "memory.limit_in_bytes"
        return {name: str(limits.memory_bytes)}
    if controller == "pids" and limits.pids:
        return {"pids.max": str(limits.pids + _OWN_PROCESSES)}
    if controller != "cpu":
        return {}
    settings = {}
    if limits.yields:
        settings = {"cpu.weight": "50"} if version == 2 else {"cpu.shares": "512"}
    if limits.cpu_millis:
        quota = max(1_000, limits.cpu_millis * _PERIOD_US // 1000)
        if version == 2:
            settings["cpu.max"] = f"{quota} {_PERIOD_US}"
        else:
            settings |= {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": str(quota)}
    return settings


def _remove(folder: Path) -> bool:
    """Kills everything in a group and in the groups below it, and removes them; returns whether
    it is gone.
    """
    end = time.monotonic() + _REMOVE_S
    while folder.is_dir():
        for inner in folder.glob("p*/"):
            _kill(inner)
            with contextlib.suppress(OSError):
                inner.rmdir()
        _kill(folder)
        with contextlib.suppress(OSError):
            folder.rmdir()
            break
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def _kill(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def _parents(root: Path, own: Path) -> Mapping[str, Path]:
    """The folder of this process for each controller; empty unless memory and pids are
    available.
    """
    found: dict[str, Path] = {}
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return {}
    for line in lines:
        _, names, path = line.split(":", 2)
        if names:
            for name in set(names.split(",")) & set(_CONTROLLERS):
                found[name] = _existing(root / name, path)
        elif (root / "cgroup.controllers").exists():
            folder = _existing(root, path)
            for name in _delegated(folder):
                found.setdefault(name, folder)
    return found if {"memory", "pids"} <= set(found) else {}


def _existing(mount: Path, path: str) -> Path:
    # In a container the path may be the one outside: the mount is then the own group.
    folder = mount / path.lstrip("/")
    return folder if folder.is_dir() else mount


def _delegated(folder: Path) -> set[str]:
    """The delegated controllers of groups below a version 2 folder, after requesting the needed
    ones.
    """
    control = folder / "cgroup.subtree_control"
    for name in _CONTROLLERS:
        with contextlib.suppress(OSError):
            control.write_text(f"+{name}")
    try:
        return set(control.read_text().split()) & set(_CONTROLLERS)
    except OSError:
        return set()
