"""Replaces itself by the program in its arguments, which then dies with the process that started
it.

Run as a file: `python -I -S launcher.py PARENT_PID PID_FILE COMMAND [ARGUMENT …]`. It writes its
process id to PID_FILE, unless that is empty. If the process leads a group, this is also the group's
id. So the parent can end the processes that the program leaves behind. If the parent is killed, it
cannot end anything, and the kernel kills the program (only on Linux).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Set the signal, check that the parent is still alive, and become the program."""
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
