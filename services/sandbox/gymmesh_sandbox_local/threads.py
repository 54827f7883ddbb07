"""The threads of running processes, and how long each thread was ready but had no processor.

Formats: proc_pid_stat(5) for the states, and the kernel's Documentation/scheduler/sched-stats.rst
for `schedstat`: nanoseconds run, nanoseconds waited for a processor, turns.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from gymmesh.sandbox.v1 import process_pb2

_PROC = Path("/proc")
# Places among the fields after the name in parentheses, which may hold anything.
_STATE, _NICE, _POLICY = 0, 16, 38
_ENDED = (b"Z", b"X")


def descendants_of(root: int) -> list[int]:
    """A process and its descendants, as far as their parents live; parents first.

    Processes that have ended, but were not yet collected by their parents, are omitted.
    """
    found, waiting = [root], [root]
    while waiting:
        process = waiting.pop()
        with contextlib.suppress(OSError):
            for task in os.scandir(_PROC / str(process) / "task"):
                with contextlib.suppress(OSError):
                    children = Path(task.path, "children").read_text().split()
                    waiting += map(int, children)
                    found += [int(child) for child in children if _lives(child)]
    return found


def _lives(process: str) -> bool:
    try:
        return _fields(_PROC / process)[_STATE] not in _ENDED
    except OSError:
        return False


def threads_of(root: int, processes: Iterable[int]) -> Sequence[process_pb2.ThreadUsage]:
    """The threads of processes. Processes that end meanwhile are omitted.

    `root`: the process that they descend from; its CPU share is the share with which they were
    started. Empty if the kernel does not count waits. Reads files, so do not call it on an event
    loop.
    """
    try:
        share = _share(_fields(_PROC / str(root)))
    except OSError:
        return []
    found: list[process_pb2.ThreadUsage] = []
    for process in processes:
        with contextlib.suppress(OSError):
            for thread in os.scandir(_PROC / str(process) / "task"):
                with contextlib.suppress(OSError):
                    found.append(_usage(Path(thread.path), share))
    return found


def _usage(folder: Path, share: tuple[bytes, bytes]) -> process_pb2.ThreadUsage:
    fields = _fields(folder)
    ran_ns, waited_ns = map(int, (folder / "schedstat").read_text().split()[:2])
    return process_pb2.ThreadUsage(
        thread=int(folder.name),
        ran_us=ran_ns // 1000,
        waited_us=waited_ns // 1000,
        ready=fields[_STATE] == b"R",
        yields=_share(fields) != share,
    )


def _share(fields: list[bytes]) -> tuple[bytes, bytes]:
    """The properties that determine a thread's CPU share."""
    return fields[_NICE], fields[_POLICY]


def _fields(folder: Path) -> list[bytes]:
    return (folder / "stat").read_bytes().rpartition(b")")[2].split()
