"""Programs that end with this process, however it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_LAUNCHER: Final = Path(__file__).with_name("launcher.py")


def ending_with_us(command: Sequence[str], pid_file: Path | None = None) -> list[str]:
    """What to start in place of a program so that the kernel kills it when this process is killed.

    It keeps its process id and its streams; where there is a file for it, the id is written there.
    Linux only: elsewhere it is started as it is.
    """
    launcher = [sys.executable, "-I", "-S", str(_LAUNCHER)]
    return [*launcher, str(os.getpid()), str(pid_file or ""), *command]
