"""What a sandbox service has on this machine: processes, mounts, folders, groups, containers."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import aiodocker

from gymmesh_sandbox.backends.bubblewrap.launch import _PLACE
from tests.chaos.sandboxes.using import MARK
from tests.support.sandbox_groups import groups_in

_OURS: Final = json.dumps({"label": ["gymmesh.instance"]})
_SPAWNER: Final = "spawner.py"


class SandboxMachine:
    """What there is of one service.

    Args:
        mark: the value of the variable that all programs in its sandboxes have.
        store: the folder of bubblewrap's sandboxes; None for other backends.
        daemon: the URL of the service's own daemon of containers; empty for other backends.
    """

    def __init__(self, mark: str, *, store: Path | None, daemon: str) -> None:
        self._mark = f"{MARK}={mark}".encode()
        self._store = store
        self._daemon = daemon

    async def left(self, service: int) -> list[str]:
        """What there is of its sandboxes, in words. `service`: the process id of the service."""
        found = [f"process {pid}: {words}" for pid, words in self.programs().items()]
        found += [f"process {pid} of bubblewrap" for pid in _launchers(service)]
        if self._store is not None:
            found += [f"folder {path}" for path in self._folders()]
            found += [f"control group {path}" for path in groups_in(self._store)]
            for pid in (os.getpid(), service, *spawners(service)):
                found += [f"mount of process {pid}: {line}" for line in _roots(pid)]
        found += await self._containers()
        return found

    async def until_nothing(self, service: Callable[[], int], within_s: float) -> list[str]:
        """Waits until nothing is left; what is, when that takes longer. `service`: see `left`."""
        until = time.monotonic() + within_s
        while True:
            left = await self.left(service())
            if not left or time.monotonic() > until:
                return left
            await asyncio.sleep(0.2)

    def running(self) -> bool:
        """Whether programs run in sandboxes."""
        return bool(self.programs())

    async def first_processes(self, service: int) -> list[int]:
        """The process ids of the sandboxes' first processes."""
        if not self._daemon:
            children = _children()
            return [child for pid in _launchers(service) for child in children.get(pid, ())]
        async with aiodocker.Docker(self._daemon) as docker:
            found = []
            for container in await docker.containers.list(filters=_OURS):
                found.append(int((await container.show())["State"]["Pid"]))
        return [pid for pid in found if pid]

    async def _containers(self) -> list[str]:
        if not self._daemon:
            return []
        async with aiodocker.Docker(self._daemon) as docker:
            containers = await docker.containers.list(all="true", filters=_OURS)
            images = await docker.images.list(filters=json.loads(_OURS))
        found = [f"container {one.id[:12]}" for one in containers]
        return found + [f"image {one['Id'][:19]} {one.get('RepoTags')}" for one in images]

    def programs(self) -> Mapping[int, str]:
        """The process ids of the programs in its sandboxes, and their command lines."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark in (folder / "environ").read_bytes().split(b"\0"):
                    words = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(folder.name)] = words.decode(errors="replace").strip()
            except OSError:
                continue
        return found

    def _folders(self) -> Sequence[Path]:
        assert self._store is not None
        return [
            path
            for kind in ("boxes", "layers")
            for path in self._store.glob(f"instances/*/{kind}/*")
        ]


def spawners(service: int) -> list[int]:
    """The processes that start the sandboxes of a service of bubblewrap."""
    return [pid for pid in _children().get(service, ()) if _SPAWNER in _words(pid)]


def descriptors(pid: int) -> int:
    """How many files a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def _launchers(service: int) -> list[int]:
    children = _children()
    return [
        child
        for pid in spawners(service)
        for child in children.get(pid, ())
        if _words(child).startswith(("bwrap", "/usr/bin/bwrap"))
    ]


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        found.setdefault(int(fields[1]), []).append(int(folder.name))
    return found


def _words(pid: int) -> str:
    try:
        words: Any = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return ""
    return str(words.decode(errors="replace"))


def _roots(pid: int) -> list[str]:
    """The mounts of sandboxes' file systems that a process sees: there must be none outside."""
    try:
        lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    except OSError:
        return []
    return [one for one in lines if f" {_PLACE} " in one and " - overlay " in one]
