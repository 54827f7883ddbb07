"""Follows the log of a process: keeps its end, shows it, and writes it to a file if wanted."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from pathlib import Path
from typing import IO, Final

from gymmesh_runtime.text.plain_text import one_line
from gymmesh_runtime.waits import cancel_and_wait

_TAIL_LINES: Final = 30
_log = logging.getLogger("gymmesh.model.vllm")


class LogFollower:
    """Reads one stream to its end. name: the model's in the mesh, which begins each line shown.

    path: a file that the lines are appended to, or None. Raises OSError when it can't be opened.
    """

    def __init__(self, stream: asyncio.StreamReader, name: str, path: str | None) -> None:
        self._stream = stream
        self._name = name
        self._file: IO[str] | None = None
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._file = os.fdopen(fd, "a", encoding="utf-8", buffering=1)
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._task = asyncio.create_task(self._follow())

    @property
    def tail(self) -> list[str]:
        """The last lines."""
        return list(self._tail)

    async def end(self, seconds: float) -> None:
        """Waits for the stream's end, but no longer than that; then stops reading."""
        await asyncio.wait([self._task], timeout=seconds)
        await cancel_and_wait(self._task)

    async def _follow(self) -> None:
        try:
            while line := await self._line():
                text = one_line(line.decode(errors="replace").rstrip())
                if text:
                    self._take(text)
        finally:
            if self._file is not None:
                self._file.close()

    async def _line(self) -> bytes:
        try:
            return await self._stream.readline()
        except ValueError:  # longer than the reader's limit, which drops it
            return b"(a line of the log was too long to show)\n"

    def _take(self, text: str) -> None:
        self._tail.append(text)
        _log.info("[%s] %s", self._name, text)
        if self._file is not None:
            try:
                self._file.write(f"{text}\n")
            except OSError as error:  # a full disk is no reason to lose the model
                _log.warning("model %s: its log file ends here: %s", self._name, error.strerror)
                self._file.close()
                self._file = None
