"""Kills leftover processes if its parent process ends without having ended them.

vLLM's engine computes in several processes. They do not notice if the process that loaded the
engine is killed, and would keep a GPU's memory for ever. This small process outlives the parent to
kill them. It imports nothing of the project, and is run by its path.

Its contract: the first line on stdin is a mark, an environment variable (`NAME=value`) with which
the processes are started. This process looks for them in /proc each second, until a further line
names some processes by number. From then on, these processes and all their descendants are known.
Such lines can be repeated. (Marks alone don't suffice: a process that changes its title overwrites
its environment.) A line `well` says that all processes have ended in order. If stdin ends without
this line, all known processes are killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path

_SCAN_SECONDS = 1.0
_ROUNDS = 20
_PAUSE_SECONDS = 0.1


class KnownProcesses:
    """Processes by number and start time, so that a reused number is not mistaken for an earlier
    process.
    """

    def __init__(self) -> None:
        self._started: dict[int, str] = {}

    def add(self, pids: set[int]) -> None:
        """Adds processes, and all descendants of the added and of the known processes."""
        table = _table()
        alive = {pid for pid in self._started if self._is(pid, table)}
        found = (pids | alive) & table.keys()
        while more := {pid for pid, (parent, _) in table.items() if parent in found} - found:
            found |= more
        self._started = {pid: table[pid][1] for pid in found}

    def kill(self) -> None:
        table = _table()
        for pid in [pid for pid in self._started if self._is(pid, table)]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _is(self, pid: int, table: dict[int, tuple[int, str]]) -> bool:
        return pid in table and table[pid][1] == self._started[pid]


def main() -> None:
    """Reads stdin until it ends, and kills the known processes if needed."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    known, mark, text = KnownProcesses(), b"", b""
    scanning = True
    while True:
        ready, _, _ = select.select([0], [], [], _SCAN_SECONDS if scanning else None)
        if ready:
            piece = os.read(0, 65536)
            if not piece:
                break
            *lines, text = (text + piece).split(b"\n")
            for line in lines:
                if line == b"well":
                    return
                if not mark:
                    mark = line
                else:
                    scanning = False
                    known.add({int(word) for word in line.split()})
        if scanning and mark:
            known.add(_marked(mark))
    # Several times: one that is just starting others may be quicker.
    for _ in range(_ROUNDS):
        known.add(_marked(mark))
        known.kill()
        time.sleep(_PAUSE_SECONDS)


def _marked(mark: bytes) -> set[int]:
    found = set()
    for pid in _pids():
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.add(pid)
    return found


def _table() -> dict[int, tuple[int, str]]:
    """The parent and the start time of each process."""
    found = {}
    for pid in _pids():
        with contextlib.suppress(OSError, IndexError):
            # After the name, which may hold anything: state, parent, … and the 20th, the start.
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            found[pid] = (int(fields[1]), fields[19].decode())
    return found


def _pids() -> list[int]:
    own = os.getpid()
    numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return [pid for pid in numbers if pid != own]


if __name__ == "__main__":
    main()
