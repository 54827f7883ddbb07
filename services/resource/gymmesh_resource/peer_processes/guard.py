"""Runs a command and ends with it, and nothing that the command started outlives this process.

Run as a file: `python -I -S guard.py PARENT_PID COMMAND [ARGUMENT …]`. When the command ends, when
SIGTERM comes, and when the parent is killed, all descendants of the command are killed, those in
sessions of their own too; then it exits with the command's status, 128 and a signal's number for
a signal. Finding all descendants is Linux only; elsewhere the command's process group is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LINUX = sys.platform == "linux"
_AWAITED = (signal.SIGTERM, signal.SIGCHLD)
_KILL_S = 10.0


def main() -> NoReturn:
    """Start the command, wait for its end or for SIGTERM, and kill what is left."""
    parent = int(sys.argv[1])
    # Blocked and waited for, rather than handled: no signal comes between two steps.
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    if _LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            sys.exit(1)
    child = os.fork()
    if not child:
        _become(sys.argv[2:])
    # The streams belong to the command: their end is its end.
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    status = _status_of(child)
    _kill_all(child)
    os._exit(status)


def _become(command: list[str]) -> NoReturn:
    """In the child: becomes the command, which dies with this process."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
        os.setsid()
        if _LINUX:
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _status_of(child: int) -> int:
    """The command's exit status, or that of SIGTERM; orphans that end meanwhile are collected."""
    while signal.sigwait(_AWAITED) != signal.SIGTERM:
        # One signal may stand for several ends.
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
                return code if code >= 0 else 128 - code
    return 128 + signal.SIGTERM


def _kill_all(child: int) -> None:
    """Kill the command's group and all descendants; bounded.

    They are stopped before they are killed, so that none of them forks while others are looked for.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    end = time.monotonic() + _KILL_S
    while time.monotonic() < end:
        stopped: set[int] = set()
        while new := _descendants() - stopped:
            for process in new:
                _send(process, signal.SIGSTOP)
            stopped |= new
        for process in stopped:
            _send(process, signal.SIGKILL)
        if not _collected():
            return
        time.sleep(0.01)


def _collected() -> bool:
    """Collect children that have ended; whether any are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _descendants() -> set[int]:
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{process}/task"):
                with contextlib.suppress(OSError):
                    with open(f"/proc/{process}/task/{task}/children", encoding="ascii") as file:
                        children = {int(child) for child in file.read().split()}
                    waiting += children - found
                    found |= children
    return found


def _send(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
