"""What the tests of the sandbox need: one that is open, and a look at what it left behind."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from gymmesh_resource.sandbox import BubblewrapSandbox, Limits, Program
from tests.support.optional import require

# What ends by itself has more time than it needs on a busy machine; what is endless and keeps a
# processor busy is ended by `cpu_s`. Tests of what waits for ever use BRIEF.
TIGHT = Limits(
    wall_s=60.0,
    cpu_s=1,
    memory_bytes=128 * 1024 * 1024,
    processes=16,
    file_bytes=1024 * 1024,
    tmp_bytes=4 * 1024 * 1024,
    output_bytes=65_536,
)
BRIEF = replace(TIGHT, wall_s=2.0)


def require_bubblewrap() -> None:
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")


@asynccontextmanager
async def opened(concurrency: int = 4, warm: int = 0) -> AsyncIterator[BubblewrapSandbox]:
    sandbox = BubblewrapSandbox(concurrency=concurrency, warm=warm)
    await sandbox.open()
    try:
        yield sandbox
    finally:
        await sandbox.close()


async def until_waiting(
    sandbox: BubblewrapSandbox, program: Program, limits: Limits = TIGHT, count: int = 1
) -> None:
    """Wait, a minute at most, until so many programs wait that can become this one."""
    for _ in range(12_000):
        if sandbox.waiting(program, limits) >= count:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"{sandbox.waiting(program, limits)} programs wait, not {count}")


def descendants() -> list[str]:
    """The commands of this process's living descendants, and of those in namespaces of pids."""
    parents: dict[int, int] = {}
    inner: set[int] = set()
    names: dict[int, str] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            # A process may have any bytes for a name.
            status = Path(f"/proc/{entry}/status").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        pid = int(entry)
        if fields["State"].split()[0] == "Z" and int(fields["PPid"]) == 1:
            continue  # dead, and the machine's first process buries it when it likes
        parents[pid], names[pid] = int(fields["PPid"]), fields["Name"].strip()
        if len(fields.get("NSpid", "").split()) > 1:
            inner.add(pid)
    found = set()
    for pid in parents:
        ancestor = pid
        while ancestor in parents and ancestor != os.getpid():
            ancestor = parents[ancestor]
        # Others' sandboxes may be at work beside us: only orphans count among strangers.
        if pid != os.getpid() and (
            ancestor == os.getpid() or (pid in inner and parents[pid] in (0, 1))
        ):
            found.add(pid)
    return sorted(names[pid] for pid in found)


async def left_behind(before: list[str]) -> list[str]:
    """The descendants there are beside those `before`, after a minute at most to die."""
    for _ in range(6000):
        # Some of those before may have been dying themselves.
        if not (more := Counter(descendants()) - Counter(before)):
            return []
        await asyncio.sleep(0.01)
    return sorted(more.elements())


def groups() -> list[Path]:
    """The control groups that this process made and did not remove."""
    own = f"gymmesh-box-of-*-{os.getpid()}-*"
    # Not by Path.glob, which fails where a group of another process goes meanwhile.
    walk = os.walk("/sys/fs/cgroup")
    return [Path(at, name) for at, names, _ in walk for name in fnmatch.filter(names, own)]


def late_files(pid: int | None = None) -> list[Path]:
    """The files, yet to be written, that programs of a process were started ahead with."""
    name = f"gymmesh-late-{pid or os.getpid()}-*"
    return [path for place in ("/dev/shm", "/tmp") for path in Path(place).glob(name)]
