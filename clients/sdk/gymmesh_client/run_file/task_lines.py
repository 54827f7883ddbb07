"""The lines of a run's task file as digests, so that a resumption can name the one that changed.

NAME.tasks holds a header and then 8 bytes for each line of the task file: 8 MB for a million.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gymmesh_client.problems import TaskProblem, unreadable
from gymmesh_client.safe_writes import write_whole
from gymmesh_client.tasks import TaskDefaults, TaskReader, images_digest

HEADER: Final = b"\x89gymmesh tasks\n\x01\n"
_DIGEST: Final = 8
_READER: Final = TaskReader(TaskDefaults("any", "any"))


@dataclass(frozen=True, slots=True)
class TaskLines:
    """The lines of a task file, with the images in files that they name."""

    sha256: str  # of the whole file, hex
    digests: array[int]  # 8 bytes of BLAKE2b of each line without the blanks around it; 0: blank

    @staticmethod
    def of(path: Path) -> TaskLines:
        """Read a task file. Raises UserError where it cannot be read."""
        whole, digests = hashlib.sha256(), array("Q")
        try:
            with path.open("rb") as file:
                for line in file:
                    images = images_digest(line, path.parent)
                    whole.update(line + images)
                    digests.append(_digest(line, images))
        except OSError as error:
            raise unreadable(path, error) from None
        return TaskLines(whole.hexdigest(), digests)

    def write(self, path: Path) -> None:
        """Keep the digests, whole or not at all. Raises OSError."""
        write_whole(path, HEADER + bytes.fromhex(self.sha256) + self.digests.tobytes())

    @staticmethod
    def read(path: Path) -> TaskLines | None:
        """What `write` kept; None where there is nothing or it is damaged."""
        with suppress(OSError, ValueError):
            data = path.read_bytes()
            begin = len(HEADER) + 32
            if data.startswith(HEADER) and len(data) >= begin:
                digests = array("Q")
                digests.frombytes(data[begin:])
                return TaskLines(data[len(HEADER) : begin].hex(), digests)
        return None


def described(was: TaskLines, now: TaskLines, path: Path) -> str:
    """What changed in the task file at `path`, as one clause that names the first line and its
    task.
    """
    old, new = was.digests, now.digests
    both = min(len(old), len(new))
    first = next((at for at in range(both) if old[at] != new[at]), both)
    gone, added = Counter(old) - Counter(new), Counter(new) - Counter(old)
    if not gone and not added:
        if first == both:
            return "only whitespace around the lines differs"
        return f"the order of the lines differs from line {first + 1} on{_task(path, first)}"
    counts = f"lines added or changed: {added.total()}, lines removed or changed: {gone.total()}"
    if first == len(new):
        return f"the file ends before line {first + 1}; {counts}"
    if first == len(old):
        return f"line {first + 1}{_task(path, first)} is new; {counts}"
    return f"line {first + 1}{_task(path, first)} differs; {counts}"


def _digest(line: bytes, images: bytes) -> int:
    text = line.removeprefix(b"\xef\xbb\xbf").strip()
    if not text:
        return 0
    return int.from_bytes(hashlib.blake2b(text + images, digest_size=_DIGEST).digest(), "little")


def _task(path: Path, place: int) -> str:
    """The task on a line, counted from 0, for people; empty where it is none."""
    with suppress(OSError), path.open("rb") as file:
        for at, raw in enumerate(file):
            if at == place and raw.strip():
                entry = _READER.row(at + 1, raw.removeprefix(b"\xef\xbb\xbf"))
                return "" if isinstance(entry, TaskProblem) else f" (task {entry.task.task_id!r})"
    return ""
