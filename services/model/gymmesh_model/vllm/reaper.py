"""Ends the processes started here when this one ends, even if it is killed."""

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
    """Watches over the processes started within `marking`, where there is a /proc."""

    def __init__(self) -> None:
        self._value = secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the process that stays behind; once, and outside of `marking`."""
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
        """Watches over all processes started in the block, and their descendants."""
        os.environ[_NAME] = self._value
        try:
            yield
        finally:
            os.environ.pop(_NAME, None)

    def watch(self, pids: Iterable[int]) -> None:
        """What was started has settled, and comes down to these processes and their children."""
        self._tell(" ".join(str(pid) for pid in pids))

    def stop(self) -> None:
        """All have ended in order: nothing is to be killed. Harmless twice."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                process.communicate(b"well\n", timeout=_SECONDS)

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(f"{line}\n".encode())
                self._process.stdin.flush()
