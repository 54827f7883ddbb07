"""Processes that are killed, stopped and started again, at the same addresses."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import random
import signal
import struct
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Container, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from gymmesh_mesh import MeshConfig
from gymmesh_mesh.compose import ServiceSpec
from gymmesh_mesh.layout import ProcessPlan, plan_processes
from tests.support.ports import free_port

ROOT: Final = Path(__file__).resolve().parents[2]
START_S: Final = 240.0
_AGAIN_S: Final = (0.2, 1.0)


class Clock:
    """A file by which the wall clock of a process is set; see launched.py."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(struct.pack("<d", 0.0))

    def jump(self, seconds: float) -> None:
        """Move it by so many seconds."""
        with self.path.open("r+b") as file:
            at = struct.unpack("<d", file.read(8))[0]
            file.seek(0)
            file.write(struct.pack("<d", at + seconds))


class Kept:
    """A process that is started again when it ends, as an operator or a supervisor would.

    Subclasses say how it is started.
    """

    name = ""

    def __init__(self, log: Path) -> None:
        self.process: Process | None = None
        self.starts = 0
        self._log = log
        self._stopping = False
        self._keeper: asyncio.Task[None] | None = None
        self.up = asyncio.Event()

    async def command(self) -> Sequence[str]:
        """Its command line."""
        raise NotImplementedError

    async def hello(self, process: Process) -> bool:
        """Talks to a fresh process until it serves; whether it does."""
        raise NotImplementedError

    async def begin(self) -> None:
        """Start it, and keep it up. Raises TimeoutError when it does not come up."""
        self._keeper = asyncio.create_task(self._keep())
        async with asyncio.timeout(START_S):
            await self.up.wait()

    def signal(self, number: int) -> bool:
        """Send a signal; whether there was a process to send it to."""
        if self.process is None or self.process.returncode is not None:
            return False
        self.process.send_signal(number)
        return True

    async def kill(self) -> bool:
        """Kill it, and wait until it is up again; whether there was a process to kill.

        Raises TimeoutError when it does not come up.
        """
        starts = self.starts
        if not self.signal(signal.SIGKILL):
            return False
        async with asyncio.timeout(START_S):
            while self.starts == starts:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.02)
            await self.up.wait()
        return True

    async def end(self) -> None:
        """Kill it for good."""
        self._stopping = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    def _say(self, line: bytes) -> None:
        with self._log.open("ab") as log:
            log.write(b"the start failed: " + (line or b"it said nothing\n"))

    async def _keep(self) -> None:
        while not self._stopping:
            with self._log.open("ab") as log:
                self.process = await asyncio.create_subprocess_exec(
                    *await self.command(), stdin=PIPE, stdout=PIPE, stderr=log, cwd=ROOT
                )
            self.starts += 1
            try:
                async with asyncio.timeout(START_S):
                    if await self.hello(self.process):
                        self.up.set()
            except (TimeoutError, OSError):
                with contextlib.suppress(ProcessLookupError):
                    self.process.kill()
            await self.process.wait()
            self.up.clear()
            await asyncio.sleep(random.uniform(*_AGAIN_S))


class Worker(Kept):
    """One process of a mesh, alone under its own supervisor.

    `gym-cli up` takes a mesh down when one of its processes dies. Where services have supervisors
    of their own (a unit, a pod), each is such a process: `python -m gymmesh_mesh.worker`, told its
    services and the registry's address, at ports that stay.
    """

    def __init__(
        self,
        plan: ProcessPlan,
        options: dict[str, Any],
        folder: Path,
        *,
        prefix: Sequence[str] = (),
    ) -> None:
        super().__init__(folder / f"{plan.name}.log")
        self.name = plan.name
        self.clock = Clock(folder / f"{plan.name}.clock")
        self.metrics_address = ""
        self._plan = plan
        self._options = options
        self._prefix = prefix

    async def command(self) -> Sequence[str]:
        launched = [sys.executable, "-m", "tests.chaos.launched", "--clock", str(self.clock.path)]
        return [*self._prefix, *launched, "worker"]

    async def hello(self, process: Process) -> bool:
        assert process.stdin is not None
        assert process.stdout is not None
        specs = {"services": [_spec(one) for one in self._plan.specs]}
        for said in ({**specs, "exposed": sorted(self._plan.exposed)}, self._options):
            process.stdin.write(json.dumps(said).encode() + b"\n")
        line = await process.stdout.readline()
        ready = json.loads(line).get("ready") if line else None
        if ready is None:
            self._say(line)
            return False
        self.metrics_address = next(iter(ready.values()))["metrics_address"]
        return True


async def begin_workers(
    config: dict[str, Any],
    folder: Path,
    taken: set[int],
    stack: AsyncExitStack,
    kinds: Container[str] | None = None,
) -> tuple[dict[str, Worker], dict[str, int]]:
    """Starts a mesh of one process for each service: first the registry, then the others at once.

    Args:
        config: the mesh's file; its layout is `mesh`.
        folder: for the processes' logs.
        taken: ports that must not be used; those of the processes are added.
        stack: ends the processes.
        kinds: of the services that are started; None: all.

    Returns the processes and their ports by the names of the services; `registry` is one of them.
    """
    workers: dict[str, Worker] = {}
    ports: dict[str, int] = {}
    registry = ""
    for plan in plan_processes(msgspec.convert(config, MeshConfig)):
        (spec,) = plan.specs
        if kinds is not None and spec.kind not in kinds:
            continue
        port = ports[plan.name] = free_port(taken=taken)
        options = {
            "host": "127.0.0.1",
            "ports": {spec.instance_id: port},
            "drain_s": 1.0,
            "discovery_address": registry,
            "security": {"insecure": True},
        }
        registry = registry or f"127.0.0.1:{port}"
        workers[plan.name] = worker = Worker(plan, options, folder)
        stack.push_async_callback(worker.end)
    first, *others = workers.values()
    await first.begin()
    await asyncio.gather(*(worker.begin() for worker in others))
    return workers, ports


class Endpoint(Kept):
    """The policy's endpoint."""

    name = "endpoint"

    def __init__(
        self,
        host: str,
        port: int,
        slowest_s: float,
        folder: Path,
        *,
        prefix: Sequence[str] = (),
    ) -> None:
        super().__init__(folder / "endpoint.log")
        self.arguments = [host, str(port), str(slowest_s)]
        self._prefix = prefix

    async def command(self) -> Sequence[str]:
        return [*self._prefix, sys.executable, "-m", "tests.chaos.endpoint", *self.arguments]

    async def hello(self, process: Process) -> bool:
        assert process.stdout is not None
        return await process.stdout.readline() == b"ready\n"

    def storm(self, kind: str, share: float) -> None:
        """Order one, or none with an empty kind."""
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.write(
                    json.dumps({"storm": kind, "share": share}).encode() + b"\n"
                )


def _spec(spec: ServiceSpec) -> dict[str, str]:
    config = base64.b64encode(spec.config_json).decode()
    return {
        "kind": spec.kind,
        "name": spec.name,
        "instance_id": spec.instance_id,
        "config": config,
    }


async def run_quietly(*command: str) -> bool:
    """Run a program; whether it went well."""
    try:
        process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
    except OSError:
        return False
    return await process.wait() == 0


def kill_all(pids: Iterable[int]) -> bool:
    """Kills processes; whether one was there."""
    hit = False
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, KILL)
            hit = True
    return hit


def is_root() -> bool:
    """Whether namespaces and mounts may be made."""
    return os.geteuid() == 0


STOP, GO, KILL = signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL
