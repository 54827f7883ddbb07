"""Network namespaces and small disks, where this machine and user can make them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.chaos.processes import is_root, run_quietly

_DISK: Final = "24m"


class Apart:
    """A network namespace for one process, and the wire to it.

    The rest of the world is at `here`, the process at `there`.
    """

    def __init__(self, number: int) -> None:
        self._name = f"gymmesh{os.getpid()}"
        self._near = f"gm{os.getpid()}"
        net = f"10.77.{number % 250}"
        self.here, self.there = f"{net}.1", f"{net}.2"

    @property
    def prefix(self) -> Sequence[str]:
        """What a command line begins with to run there."""
        return ("ip", "netns", "exec", self._name)

    async def make(self) -> bool:
        """Make it; whether that can be done here."""
        if not is_root() or shutil.which("ip") is None:
            return False
        inside = ("ip", "-n", self._name)
        steps = (
            ("ip", "netns", "add", self._name),
            ("ip", "link", "add", self._near, "type", "veth", "peer", "name", "far",
             "netns", self._name),
            ("ip", "addr", "add", f"{self.here}/30", "dev", self._near),
            ("ip", "link", "set", self._near, "up"),
            (*inside, "addr", "add", f"{self.there}/30", "dev", "far"),
            (*inside, "link", "set", "far", "up"),
            (*inside, "link", "set", "lo", "up"),
        )  # fmt: skip
        for step in steps:
            if not await run_quietly(*step):
                await self.remove()
                return False
        return True

    async def cut(self) -> None:
        """Nothing passes either way, and nobody is told."""
        await run_quietly("ip", "-n", self._name, "link", "set", "far", "down")

    async def mend(self) -> None:
        """The wire is whole again."""
        await run_quietly("ip", "-n", self._name, "link", "set", "far", "up")

    async def remove(self) -> None:
        """Take it away."""
        await run_quietly("ip", "link", "del", self._near)
        await run_quietly("ip", "netns", "del", self._name)


class SmallDisk:
    """A file system of its own for the output, which can be filled."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mounted = False
        self._filler = path / "filler"

    async def make(self) -> bool:
        """Mount it; whether that can be done here."""
        self.mounted = is_root() and await run_quietly(
            "mount", "-t", "tmpfs", "-o", f"size={_DISK}", "none", str(self.path)
        )
        return self.mounted

    def fill(self) -> None:
        """Leave no room."""
        block = 1 << 20
        with self._filler.open("wb", buffering=0) as file:
            while block:
                try:
                    file.write(b"\0" * block)
                except OSError:
                    block //= 4

    def empty(self) -> None:
        """Make room again."""
        self._filler.unlink(missing_ok=True)

    async def remove(self) -> None:
        """Unmount it; what is on it stays in the folder."""
        if self.mounted:
            kept = self.path.with_name("kept")
            shutil.copytree(self.path, kept)
            await run_quietly("umount", str(self.path))
            self.mounted = False
            shutil.copytree(kept, self.path, dirs_exist_ok=True)
            shutil.rmtree(kept)
