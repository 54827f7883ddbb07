"""A process of the product, watched from inside: python -m tests.chaos.launched OPTIONS -- WHAT ….

WHAT is `gym-cli` with its arguments, or `worker`, one process of a mesh. What is added changes
nothing that it does:

--clock FILE   the wall clock is the machine's plus the seconds in FILE (8 bytes, a double), now and
               whenever they change; the monotonic clock is left alone, as real jumps leave it
--acks FILE    a collector's attempts as JSON lines: sent, ended, and said to be on disk; stamped
               with the monotonic clock, which all processes of a machine share
--synced FILE  after each sync to disk, the file's inode and size: what a power cut would leave

But --plant NAME puts in one of the bugs of tests/chaos/planted.py, for the judge to find.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import json
import mmap
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1  # of <linux/prctl.h>
Append = Callable[[dict[str, Any]], None]


def die_with_parent() -> None:
    """Leave no process behind when the harness itself is killed, not even a stopped one."""
    with contextlib.suppress(OSError, AttributeError):  # Linux alone has it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def skew_clock(path: Path) -> None:
    """Make the wall clock jump by what the file says.

    grpc makes deadlines of Python's wall clock and compares them with the machine's, which both
    jump in earnest; so grpc keeps the machine's.
    """
    machine = SimpleNamespace(**vars(time))
    for module in ("grpc.aio._utils", "grpc._channel", "grpc._server", "grpc._cython.cygrpc"):
        vars(importlib.import_module(module))["time"] = machine
    with path.open("r+b") as file:
        view = mmap.mmap(file.fileno(), 8)
    read = struct.Struct("<d").unpack_from
    now, now_ns = time.time, time.time_ns

    def skewed() -> float:
        return now() + float(read(view)[0])

    def skewed_ns() -> int:
        return now_ns() + int(read(view)[0] * 1e9)

    time.time, time.time_ns = skewed, skewed_ns


def appender(path: Path) -> Append:
    """Appends JSON lines, each with one write, so that a kill leaves whole ones."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def append(value: dict[str, Any]) -> None:
        os.write(fd, json.dumps(value).encode() + b"\n")

    return append


def watch_attempts(append: Append) -> None:
    """Note attempts sent to agents over Collect, their ends, and what is said to be stored."""
    from gymmesh_client.collect_stream.pool import AgentPool, CollectingAgent

    def note(what: str, rollout: str, attempt: int, **more: float) -> None:
        said = {"what": what, "rollout": rollout, "attempt": attempt, "at": time.monotonic()}
        append({**said, **more})

    run, stored = CollectingAgent.run_rollout, AgentPool.stored

    async def watched_run(self: Any, request: Any, *, timeout: float, sink: Any) -> None:
        note("sent", request.rollout_id, request.attempt, timeout=timeout)
        try:
            await run(self, request, timeout=timeout, sink=sink)
        finally:
            note("ended", request.rollout_id, request.attempt)

    def watched_stored(self: Any, rollout_id: str, attempt: int) -> None:
        note("stored", rollout_id, attempt)
        stored(self, rollout_id, attempt)

    CollectingAgent.run_rollout = watched_run  # type: ignore[method-assign]
    AgentPool.stored = watched_stored  # type: ignore[method-assign]


def watch_syncs(append: Append) -> None:
    """Note what is on disk of each file of the run."""
    from gymmesh_client.disk import Disk

    sync = Disk.sync

    def watched(self: Any, fd: int) -> None:
        # Before, since what is written meanwhile may or may not be on disk after.
        size = os.fstat(fd).st_size
        sync(self, fd)
        append({"inode": os.fstat(fd).st_ino, "size": size})

    Disk.sync = watched  # type: ignore[method-assign]


def main() -> int:
    """Sets the watches, and becomes what is asked for."""
    parser = argparse.ArgumentParser(prog="launched")
    for name in ("--clock", "--acks", "--synced"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--plant")
    parser.add_argument("what", choices=("gym-cli", "worker"))
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    die_with_parent()
    if asked.clock:
        skew_clock(asked.clock)
    if asked.acks:
        watch_attempts(appender(asked.acks))
    if asked.synced:
        watch_syncs(appender(asked.synced))
    if asked.plant:
        from tests.chaos.planted import plant

        plant(asked.plant)
    if asked.what == "worker":
        from gymmesh_mesh.worker import main as serve

        return serve()
    from gymmesh_cli.main import cli

    sys.argv = ["gym-cli", *asked.arguments]
    cli(prog_name="gym-cli")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
