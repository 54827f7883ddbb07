"""A sandbox service over the directory backend, called directly, with a clock of the test's own."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymmesh.sandbox.v1 import files_pb2, process_pb2, sandbox_pb2
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serve import instance_of
from gymmesh_sandbox.config import SandboxConfig
from gymmesh_sandbox.live import LiveSandbox
from gymmesh_sandbox.processes import ProcessTable
from gymmesh_sandbox.sandboxes import Sandboxes
from gymmesh_sandbox.service import SANDBOX_SERVICE, SandboxService
from gymmesh_sandbox.timers import Clock
from tests.support.directory_sandboxes import DirectoryBackend

INSTANCE = "sandbox-boxes-0"
TIMEOUT = 60.0
_numbers = itertools.count()


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.seconds, lambda: round((self.seconds + 1e9) * 1e9))


def new_id() -> str:
    """A request id."""
    return f"r-{next(_numbers)}"


@dataclass
class Heard:
    """What was heard of a process."""

    stdout: bytes = b""
    stderr: bytes = b""
    process_id: str = ""
    exit: process_pb2.ProcessExit = field(default_factory=process_pb2.ProcessExit)

    def take(self, event: process_pb2.ProcessEvent) -> None:
        """The next event."""
        self.stdout += event.stdout
        self.stderr += event.stderr
        if event.HasField("started"):
            assert not self.process_id
            self.process_id = event.started.process_id
        if event.HasField("exit"):
            self.exit = event.exit


@dataclass
class Box:
    """A sandbox, by its leases."""

    peer: Any
    created: sandbox_pb2.CreateSandboxResponse

    @property
    def id(self) -> str:
        return self.created.grant.sandbox.sandbox_id

    def ids(self, lease: bytes | None = None) -> dict[str, Any]:
        """The fields of a request that name it, with its operate lease or another."""
        given = self.created.grant.lease if lease is None else lease
        return {"sandbox_id": self.id, "lease": given}

    @property
    def own(self) -> dict[str, Any]:
        return self.ids(self.created.own_lease)

    async def exec(
        self,
        *words: str,
        lease: bytes | None = None,
        request_id: str = "",
        stdin: bytes = b"",
        **process: Any,
    ) -> Heard:
        """Runs a program, or a shell line given as `shell`, to its end."""
        if words:
            process["argv"] = process_pb2.Argv(words=[word.encode() for word in words])
        request = sandbox_pb2.ExecRequest(
            **self.ids(lease),
            request_id=request_id or new_id(),
            process=process_pb2.ProcessSpec(**process),
            stdin=stdin,
        )
        heard = Heard()
        async for response in self.peer.Exec(request, timeout=TIMEOUT):
            heard.take(response.event)
        return heard

    async def start(self, **process: Any) -> str:
        """Starts a program that stays; returns its id."""
        request = sandbox_pb2.StartProcessRequest(
            **self.ids(), request_id=new_id(), process=process_pb2.ProcessSpec(**process)
        )
        answer = await self.peer.StartProcess(request, timeout=TIMEOUT)
        return str(answer.process_id)

    async def wait(self, process_id: str, stdout: int = 0, stderr: int = 0) -> Heard:
        """Listens to a process from these offsets up to its end."""
        request = sandbox_pb2.WaitProcessRequest(
            **self.ids(), process_id=process_id, stdout_offset=stdout, stderr_offset=stderr
        )
        heard = Heard()
        async for response in self.peer.WaitProcess(request, timeout=TIMEOUT):
            heard.take(response.event)
        return heard

    async def stdin(
        self, process_id: str, offset: int, content: bytes, *, close: bool = False
    ) -> int:
        """Writes to a process; returns how much was written so far."""
        request = sandbox_pb2.WriteStdinRequest(
            **self.ids(), process_id=process_id, offset=offset, content=content, close=close
        )
        answer = await self.peer.WriteStdin(request, timeout=TIMEOUT)
        return int(answer.written)

    async def write(self, path: bytes, content: bytes, lease: bytes | None = None) -> None:
        """Writes a file."""
        file = files_pb2.FileContent(path=path, content=content)
        request = files_pb2.WriteFilesRequest(**self.ids(lease), files=[file])
        await self.peer.WriteFiles(request, timeout=TIMEOUT)

    async def read(
        self, *paths: bytes, lease: bytes | None = None
    ) -> list[files_pb2.ReadFilesResponse]:
        """Reads files: all responses."""
        request = files_pb2.ReadFilesRequest(**self.ids(lease), paths=paths)
        return [one async for one in self.peer.ReadFiles(request, timeout=TIMEOUT)]

    async def lend(
        self, lease: bytes | None = None, *, ttl_s: int = 0, request_id: str = "", **scope: Any
    ) -> bytes:
        """A further lease."""
        request = sandbox_pb2.LendSandboxRequest(
            **self.ids(lease),
            request_id=request_id or new_id(),
            scope=sandbox_pb2.LeaseScope(**scope),
            ttl_s=ttl_s,
        )
        answer = await self.peer.LendSandbox(request, timeout=TIMEOUT)
        return bytes(answer.grant.lease)

    async def end(self) -> None:
        """Ends it."""
        await self.peer.EndSandbox(sandbox_pb2.EndSandboxRequest(**self.own), timeout=TIMEOUT)


@dataclass
class ServedSandboxes:
    """A service that is open, and its peer."""

    service: SandboxService
    backend: DirectoryBackend
    peer: Any
    time: HandClock

    def pass_time(self, seconds: float) -> None:
        """Moves the clock, and does what is due."""
        self.time.seconds += seconds
        self.service._timers.run_due()

    @property
    def _sandboxes(self) -> Sandboxes:
        assert self.service._sandboxes is not None
        return self.service._sandboxes

    @property
    def taken(self) -> int:
        """Places that are taken."""
        return self._sandboxes.places.taken

    @property
    def waiting(self) -> int:
        """Calls that wait for a place."""
        return self._sandboxes.places.waiting

    def live(self, sandbox_id: str) -> LiveSandbox:
        """A sandbox, as the service has it."""
        return self._sandboxes.get(sandbox_id)

    def processes(self, sandbox_id: str) -> ProcessTable:
        """Its processes."""
        return self.live(sandbox_id).processes

    def written(self, sandbox_id: str) -> int:
        """How much output is kept of a sandbox's processes."""
        return sum(one.kept for one in self.processes(sandbox_id)._by_id.values())

    async def create(self, **request: Any) -> Box:
        """Creates a sandbox."""
        request.setdefault("request_id", new_id())
        created = await self.peer.CreateSandbox(
            sandbox_pb2.CreateSandboxRequest(**request), timeout=TIMEOUT
        )
        return Box(self.peer, created)


async def until(condition: Callable[[], object]) -> None:
    """Returns once a condition holds that nothing announces."""
    async with asyncio.timeout(TIMEOUT):
        while not condition():  # noqa: ASYNC110  # nothing announces it
            await asyncio.sleep(0.01)


@asynccontextmanager
async def serve_sandboxes(
    folder: Path, directory: PeerDirectory | None = None, **changes: Any
) -> AsyncIterator[ServedSandboxes]:
    """Opens a service over the directory backend; `changes` are of its configuration."""
    config = SandboxConfig(**{"adapts": False, **changes})
    backend = DirectoryBackend({"folder": str(folder)})
    time = HandClock()
    service = SandboxService(config, "boxes", INSTANCE, backend=backend, clock=time.clock)
    directory = directory or PeerDirectory()
    await service.open(directory)
    try:
        directory.add_direct(instance_of(service), service.servicers())
        instance = directory.choose(SANDBOX_SERVICE, "boxes")
        assert instance is not None
        yield ServedSandboxes(service, backend, directory.peer(instance), time)
    finally:
        await service.close()
        await directory.close()
