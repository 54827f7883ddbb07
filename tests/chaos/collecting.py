"""The collector, run again until it says done; and what its ends leave."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import resource
import shutil
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.chaos.folder import ROWS, Folder
from tests.chaos.places import SmallDisk
from tests.chaos.plan import World
from tests.chaos.processes import KILL, ROOT, Clock

_DONE: Final = (0, 3)
_MOST_SESSIONS: Final = 40
_STUCK: Final = 12  # ends in a row by itself, without a fault that explains one


class Collecting:
    """One run: sessions of `gym-cli collect`, the first and those that resume it.

    `done` tells whether the last one came to the run's end. `prefix` is what command lines begin
    with, so as to run on another host.
    """

    def __init__(
        self,
        world: World,
        folder: Folder,
        arguments: Sequence[str],
        plant: str | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.disk = SmallDisk(folder.out)
        self.clock = Clock(folder.path / "collector.clock")
        self.process: Process | None = None
        self.sessions: list[dict[str, Any]] = []
        self.done = False
        self._synced = folder.path / "synced.jsonl"
        self._folder = folder
        self._arguments = [*arguments, *_form(world)]
        self._plant = [] if plant is None else ["--plant", plant]
        self._prefix = prefix
        self._ended_by = ""
        self._power = False

    async def run(self, within_s: float) -> None:
        """Run sessions until the run is done, or cannot be brought to its end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                alone = 0
                while not self.done and len(self.sessions) < _MOST_SESSIONS and alone < _STUCK:
                    explained = await self._session()
                    alone = 0 if explained else alone + 1
        if self.process is not None and self.process.returncode is None:
            self._ended_by = "the harness, out of time"
            self.process.kill()
            await self._note(time.monotonic(), b"")

    async def end(self) -> None:
        """Leave no collector behind, however the seed ended."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    def kill(self, *, power: bool = False) -> bool:
        """kill -9, and with `power` what was not synced is gone; whether there was one."""
        if self.process is None or self.process.returncode is not None:
            return False
        self._ended_by, self._power = "power cut" if power else "kill", power
        self.process.send_signal(KILL)
        return True

    def limit_files(self) -> bool:
        """No file may grow much further; whether there was a process to tell so."""
        if self.process is None or self.process.returncode is not None:
            return False
        acks = self._folder.acks.stat().st_size if self._folder.acks.exists() else 0
        largest = max([acks * 3, *(one.stat().st_size for one in self._folder.out.iterdir())])
        limit = (largest + 20_000, resource.RLIM_INFINITY)
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, limit)
        return True

    async def begun(self) -> None:
        """Return when a first attempt was sent."""
        acks = self._folder.acks
        for _ in range(1200):
            if acks.exists() and acks.stat().st_size > 0:
                return
            await asyncio.sleep(0.05)
        raise TimeoutError("no attempt was sent within a minute")

    async def _session(self) -> bool:
        begun = time.monotonic()
        self._ended_by, self._power = "", False
        resume = ["--resume"] if self._resumes() else []
        full = self.disk.path / "filler"
        self.process = await asyncio.create_subprocess_exec(
            *self._prefix, sys.executable, "-m", "tests.chaos.launched",
            "--clock", str(self.clock.path), "--acks", str(self._folder.acks),
            "--synced", str(self._synced), *self._plant,
            "gym-cli", "collect", *self._arguments, *resume,
            stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd=ROOT,
        )  # fmt: skip
        _, stderr = await self.process.communicate()
        was_full = full.exists()
        await self._note(begun, stderr)
        self.done = not self._ended_by and self.process.returncode in _DONE
        if was_full:
            # Somebody makes room, after the collector has said that there is none.
            self.disk.empty()
        if not self.done:
            await asyncio.sleep(random.uniform(0.2, 0.8))
        return bool(self._ended_by) or was_full or b"cannot be written" in stderr

    def _resumes(self) -> bool:
        return (self._folder.out / "out.journal").exists()

    async def _note(self, begun: float, stderr: bytes) -> None:
        assert self.process is not None
        await self.process.wait()
        ended = time.monotonic()
        if self._power:
            _lose_power(self._folder.out, self._synced)
        copy = self._folder.death(len(self.sessions))
        ignored = shutil.ignore_patterns("filler", "*.trace", "*.index")
        await asyncio.to_thread(shutil.copytree, self._folder.out, copy, ignore=ignored)
        self.sessions.append(
            {
                "begun": begun,
                "ended": ended,
                "code": self.process.returncode,
                "ended_by": self._ended_by,
                "stderr": stderr.decode(errors="replace").splitlines()[-40:],
            }
        )
        self._folder.write("sessions.json", self.sessions)


def _form(world: World) -> list[str]:
    form = ["--zstd"] if world.zstd else []
    form += ["--trace"] if world.trace else []
    return [*form, *(["--shard-rows", str(world.shard_rows)] if world.shard_rows else [])]


def arguments_of(
    world: World,
    config: Path,
    tasks: Path,
    folder: Folder,
    agents: Sequence[str],
    timeout_s: float,
) -> list[str]:
    """The arguments of `gym-cli collect`."""
    return [
        "--config", str(config), "--input", str(tasks), "--output", str(folder.out / ROWS),
        "--num-repeats", str(world.repeats), "--concurrency", str(world.concurrency),
        "--timeout", str(timeout_s), "--max-attempts", str(world.attempts), "--quiet", "--json",
        *(one for agent in agents for one in ("--agent", agent)),
    ]  # fmt: skip


def _lose_power(out: Path, synced: Path) -> None:
    """Cut off what was never synced, or some of it: a disk may have written more than it must."""
    safe: dict[int, int] = {}
    for line in synced.read_bytes().splitlines() if synced.exists() else []:
        said = json.loads(line)
        safe[said["inode"]] = said["size"]
    for path in out.iterdir():
        if path.name.endswith((".jsonl", ".zst", ".journal")):
            found = path.stat()
            kept = min(safe.get(found.st_ino, 0), found.st_size)
            with path.open("r+b") as file:
                file.truncate(random.randint(kept, found.st_size))
