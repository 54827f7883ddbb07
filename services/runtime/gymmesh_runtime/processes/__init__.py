"""Programs that a service or a mesh starts: ending them with their parent, and writing to them."""

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
    """The command that starts a program so that the kernel kills it when this process is killed.

    The program keeps its process id and its streams. If there is a file for the id, the id is
    written there. Only on Linux; elsewhere the program is started unchanged.
    """
    launcher = [sys.executable, "-I", "-S", str(_LAUNCHER)]
    return [*launcher, str(os.getpid()), str(pid_file or ""), *command]


def write_to(pipe: asyncio.StreamWriter, data: bytes) -> None:
    """Write to a process's input, or to a connection. Raises BrokenPipeError if the other end is
    closed.

    In this case uvloop raises a RuntimeError, and asyncio's own loop drops the data.
    """
    try:
        pipe.write(data)
    except RuntimeError as error:
        raise BrokenPipeError(str(error)) from None
