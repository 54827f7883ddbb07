"""Programs that a service or a mesh starts: that they end with it, and writing to them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["ending_with_us", "write_to"]

_LAUNCHER: Final = Path(__file__).with_name("launcher.py")


def ending_with_us(command: Sequence[str], pid_file: Path | None = None) -> list[str]:
    """What to start in place of a program so that the kernel kills it when this process is killed.

    It keeps its process id and its streams; where there is a file for it, the id is written there.
    Linux only: elsewhere it is started as it is.
    """
    launcher = [sys.executable, "-I", "-S", str(_LAUNCHER)]
    return [*launcher, str(os.getpid()), str(pid_file or ""), *command]


def write_to(pipe: asyncio.StreamWriter, data: bytes) -> None:
    """Write to a process's input, or to a connection. Raises BrokenPipeError where the other end
    is known to be gone.

    That is what uvloop says by a RuntimeError; asyncio's own loop drops what is written then.
    """
    try:
        pipe.write(data)
    except RuntimeError as error:
        raise BrokenPipeError(str(error)) from None
