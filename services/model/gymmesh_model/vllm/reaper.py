"""Ends the processes started here when this process ends, even if this process is killed."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_REAPER: Final = Path(__file__).with_name("_reaper.py")
_NAME: Final = "GYMMESH_ENGINE"
_SECONDS: Final = 5.0


class Reaper:
    """Watches the processes started within `marking`, on systems with /proc."""

    def __init__(self) -> None:
        self._value = secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the process that outlives this one. Call this once, outside of `marking`."""
        if not Path("/proc/self/environ").exists():
            return
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_REAPER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._tell(f"{_NAME}={self._value}")

    @contextlib.contextmanager
    def marking(self) -> Iterator[None]:
        """Watches all processes started in the block, and their descendants."""
        os.environ[_NAME] = self._value
        try:
            yield
        finally:
            os.environ.pop(_NAME, None)

    def watch(self, pids: Iterable[int]) -> None:
        """Sets the processes to watch once all are started: these processes and their children."""
        self._tell(" ".join(str(pid) for pid in pids))

    def stop(self) -> None:
        """Reports that all processes ended in order: none is killed. Can be called twice."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                process.communicate(b"well\n", timeout=_SECONDS)

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(f"{line}\n".encode())
                self._process.stdin.flush()
