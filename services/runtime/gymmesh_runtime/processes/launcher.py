"""Becomes the program of its arguments, which then dies with the process that started it.

Run as a file: `python -I -S launcher.py PARENT_PID PID_FILE COMMAND [ARGUMENT …]`. The id of the
process, which is that of its group too where it has one, goes to the file, unless that is empty,
so that the parent can end what the program leaves behind. When the parent is killed and can end
nothing any more, the kernel kills the program; that is Linux only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Set the signal, see that the parent did not die before, and become the program."""
    parent = int(sys.argv[1])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(1)
    if sys.argv[2]:
        with open(sys.argv[2], "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
    command = sys.argv[3:]
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main()
