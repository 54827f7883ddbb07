"""Runs one command in its own process group, and ends the group when the parent process ends.

vLLM has several processes that use a GPU's memory. None of these processes may outlive the model
service, even if the service is killed. So this small process runs between the service and vLLM. It
imports nothing of the project, and is run by its path.

Its protocol: the first line on stdin is JSON, `{"argv", "env", "stop_s"}`. It writes to stdout
`{"pid": …}` (also the group's id) or `{"error": …}`, and at the end `{"status": …}`, as in Python's
subprocess. The command's output goes to stderr. When stdin ends, or at SIGTERM, the group gets
SIGTERM, and SIGKILL if the command is still running `stop_s` seconds later.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

_POLL_SECONDS = 0.1


def main() -> int:
    """Runs the command to its end. Returns the exit status for this process."""
    order = json.loads(sys.stdin.buffer.readline())
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda got, _: asked.append(got))
    try:
        child = subprocess.Popen(
            order["argv"],
            env=order["env"],
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
        )
    except OSError as error:
        _say({"error": error.strerror or str(error)})
        return 1
    _say({"pid": child.pid})
    try:
        while child.poll() is None and not asked and not _parent_gone():
            pass
        _end(child, order["stop_s"])
    finally:
        # What is left of the group: the command may have died without its children.
        _signal(child.pid, signal.SIGKILL)
    _say({"status": child.wait()})
    return 0


def _parent_gone() -> bool:
    """Waits a short time for stdin to end."""
    ready, _, _ = select.select([0], [], [], _POLL_SECONDS)
    return bool(ready) and not os.read(0, 4096)


def _end(child: subprocess.Popen[bytes], stop_s: float) -> None:
    if child.poll() is not None:
        return
    _signal(child.pid, signal.SIGTERM)
    deadline = time.monotonic() + stop_s
    while child.poll() is None and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS / 4)


def _signal(group: int, number: int) -> None:
    # macOS says EPERM for a group of zombies only.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _say(message: dict[str, Any]) -> None:
    # The parent may be gone, and its pipe with it.
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
