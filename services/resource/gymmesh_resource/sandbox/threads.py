"""The threads of a running program, and how long each was ready but had no processor.

Formats: proc_pid_stat(5) for the states, and the kernel's Documentation/scheduler/sched-stats.rst
for `schedstat`: nanoseconds run, nanoseconds waited for a processor, turns.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
# Places among the fields after the name in parentheses, which may hold anything.
_STATE, _PARENT, _NICE, _POLICY = 0, 1, 16, 38


@dataclass(frozen=True, slots=True)
class ProgramThread:
    """A thread at one moment.

    Attributes:
        number: its id, on the whole machine.
        ready: whether it runs, or would if it had a processor.
        waited_s: seconds for which it was ready but had no processor, since it began.
        yields: whether it has asked for another share of a processor than it began with.
        ran_s: seconds of a processor that it has used since it began.
    """

    number: int
    ready: bool
    waited_s: float
    yields: bool
    ran_s: float = 0.0


def threads_of(root: int) -> list[ProgramThread]:
    """The threads of a process and of all that descend from it.

    What ends meanwhile is left out. Empty where the kernel does not count waits. Reads all of
    `/proc`, which takes milliseconds: not for an event loop.
    """
    try:
        share = _share(_fields(_PROC / str(root)))
    except OSError:
        return []
    children = defaultdict[int, list[int]](list)
    for entry in os.scandir(_PROC):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                parent = int(_fields(Path(entry.path))[_PARENT])
                children[parent].append(int(entry.name))
    found: list[ProgramThread] = []
    waiting = [root]
    while waiting:
        process = waiting.pop()
        waiting += children[process]
        with contextlib.suppress(OSError):
            for thread in os.scandir(_PROC / str(process) / "task"):
                with contextlib.suppress(OSError):
                    found.append(_thread(Path(thread.path), share))
    return found


def _thread(folder: Path, share: tuple[bytes, bytes]) -> ProgramThread:
    fields = _fields(folder)
    ran_ns, waited_ns = map(int, (folder / "schedstat").read_text().split()[:2])
    return ProgramThread(
        number=int(folder.name),
        ready=fields[_STATE] == b"R",
        waited_s=waited_ns / 1e9,
        yields=_share(fields) != share,
        ran_s=ran_ns / 1e9,
    )


def _share(fields: list[bytes]) -> tuple[bytes, bytes]:
    """What decides on a thread's share of a processor."""
    return fields[_NICE], fields[_POLICY]


def _fields(folder: Path) -> list[bytes]:
    return (folder / "stat").read_bytes().rpartition(b")")[2].split()
