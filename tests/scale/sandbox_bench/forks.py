"""Forks of one sandbox that has much: how long they take, and what they take on disk."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from gymmesh_mesh import MeshConfig
from gymmesh_mesh.sandboxes import SandboxHandle, SandboxSpec, sandboxes_here

#: What the sandbox has: some large files, and many small ones.
_FILL: Final = """
import os
os.makedirs("small")
for number in range(8):
    with open(f"large-{number}", "wb") as file:
        for _ in range(SIZE >> 23):
            file.write(os.urandom(1 << 20))
for number in range(1000):
    with open(f"small/{number}", "wb") as file:
        file.write(os.urandom(1000))
"""
#: Of the names and contents of its files; of large ones, of those that are named.
_DIGEST: Final = """
import hashlib, os, sys
found = hashlib.sha256()
for folder, folders, names in os.walk("."):
    folders.sort()
    for name in sorted(names):
        path = os.path.join(folder, name)
        found.update(path.encode())
        if not name.startswith("large") or name in sys.argv:
            with open(path, "rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
print(found.hexdigest())
"""
_LARGE: Final = tuple(f"large-{number}" for number in range(8))
_WORK_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Forked:
    """What was found.

    Attributes:
        seconds: that all forks took together.
        disk_bytes: that all of them take in addition to the first sandbox.
        same: how many had the same content as the first one.
        others: how many, the first one included, had what one fork had then changed as before.
    """

    forks: int
    seconds: float
    disk_bytes: int
    same: int
    others: int


async def measure(folder: Path, forks: int = 64, size: int = 1 << 30) -> Forked:
    """Makes a sandbox of `size` bytes and forks it, with a service that uses `folder`."""
    config = {
        "sandboxes": {
            "boxes": {
                "places": forks + 1,
                "adapts": False,
                "options": {"folder": str(folder)},
            }
        }
    }
    async with sandboxes_here(msgspec.convert(config, MeshConfig)) as client:
        first = await client.create(SandboxSpec())
        await _python(first, _FILL.replace("SIZE", str(size)))
        (digest,) = await _digests([first], *_LARGE)
        (part,) = await _digests([first], _LARGE[0])
        before = disk_bytes(folder)
        began = time.perf_counter()
        made = await first.fork(forks)
        seconds = time.perf_counter() - began
        taken = disk_bytes(folder) - before
        same = sum(one == digest for one in await _digests(made, *_LARGE))
        changed = await made[0].exec("echo x >>large-0; rm small/1; echo y >new")
        assert changed.ok, changed.error_text
        assert await _digests(made[:1], _LARGE[0]) != [part]
        others = sum(one == part for one in await _digests([first, *made[1:]], _LARGE[0]))
        return Forked(forks, seconds, taken, same, others)


def disk_bytes(folder: Path) -> int:
    """What the files of a folder take on disk."""
    found: dict[int, int] = {}
    for at, folders, names in os.walk(folder):
        for name in (*folders, *names):
            status = os.lstat(os.path.join(at, name))
            found[status.st_ino] = status.st_blocks * 512
    return sum(found.values())


async def _digests(handles: list[SandboxHandle], *names: str) -> list[str]:
    turns = asyncio.Semaphore(os.cpu_count() or 1)

    async def one(handle: SandboxHandle) -> str:
        async with turns:
            return await _python(handle, _DIGEST, *names)

    return await asyncio.gather(*map(one, handles))


async def _python(handle: SandboxHandle, text: str, *arguments: str) -> str:
    result = await handle.exec(["python3", "-c", text, *arguments], timeout_s=_WORK_S)
    assert result.ok, result.error_text
    return result.text
