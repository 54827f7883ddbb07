"""Which processes of a container descend from a given process. Pure.

The daemon starts each process of a sandbox beside the first process of the container: its parent is
outside the container, and it leads a session of its own. Processes whose parent has ended become
children of the first process, number 1.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

_FIRST: Final = 1


@dataclass(frozen=True, slots=True)
class Seen:
    """A process that was found.

    Attributes:
        pid: its number in the container.
        state: one letter, as in /proc/PID/stat.
        parent: its parent's number; 0: outside the container.
        session: the number of its session.
        started: its start, in ticks of the kernel's clock.
    """

    pid: int
    state: str
    parent: int
    session: int
    started: int

    @property
    def ended(self) -> bool:
        """Whether only its exit code is left."""
        return self.state in "ZX"


def read_processes(lines: bytes) -> list[Seen]:
    """Reads the output of LIST_PROCESSES; lines of processes that ended meanwhile are skipped."""
    found = []
    for line in lines.decode("ascii", "replace").splitlines():
        words = line.split()
        if len(words) == 5 and all(one.isdigit() for one in (words[0], *words[2:])):
            pid, parent, session, started = (int(words[at]) for at in (0, 2, 3, 4))
            found.append(Seen(pid, words[1], parent, session, started))
    return found


def descendants(
    processes: Sequence[Seen], target: int, started: int, others: Collection[int]
) -> tuple[set[int], set[int]]:
    """The target and its descendants; and processes that may be descendants.

    Args:
        processes: all processes of the container.
        target: the process.
        started: when it started; older processes do not descend from it.
        others: the numbers of the processes that were started beside it, ended or not.

    A process that left its parents' session, and whose parents have ended, may be a descendant of
    any process that is not younger.
    """
    children: dict[int, list[Seen]] = {}
    for one in processes:
        children.setdefault(one.parent, []).append(one)
    sure = _below({target}, children)
    unsure: set[int] = set()
    for orphan in children.get(_FIRST, ()):
        if orphan.started < started or orphan.pid in sure:
            continue
        if orphan.session == target:
            sure |= _below({orphan.pid}, children)
        elif orphan.session != _FIRST and orphan.session not in others:
            unsure |= _below({orphan.pid}, children)
    return sure, unsure - sure


def _below(roots: set[int], children: dict[int, list[Seen]]) -> set[int]:
    found, left = set(roots), list(roots)
    while left:
        for one in children.get(left.pop(), ()):
            if one.pid not in found:
                found.add(one.pid)
                left.append(one.pid)
    return found
