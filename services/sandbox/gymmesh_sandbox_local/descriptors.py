"""File descriptors that are closed at the end of a block, each once."""

from __future__ import annotations

import os
from types import TracebackType


class Descriptors:
    """Owns descriptors until they are closed or given away, or until the block ends."""

    def __init__(self) -> None:
        self._owned: set[int] = set()

    def __enter__(self) -> Descriptors:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for descriptor in list(self._owned):
            self.close(descriptor)

    def pipe(self) -> tuple[int, int]:
        """A new pipe: its read end and its write end."""
        ends = os.pipe2(os.O_CLOEXEC)
        self._owned.update(ends)
        return ends

    def memory_file(self, content: bytes) -> int:
        """A new file in memory, positioned at its start."""
        descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC)
        self._owned.add(descriptor)
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def close(self, descriptor: int) -> None:
        """Closes a descriptor."""
        self._owned.remove(descriptor)
        os.close(descriptor)

    def give(self, descriptor: int) -> int:
        """Gives a descriptor away: another owner closes it."""
        self._owned.remove(descriptor)
        return descriptor
