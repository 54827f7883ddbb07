"""A sandbox service whose programs run in a folder of this machine, and whose faults tests choose.

For what a real service can't be made to do on demand: streams that break off, answers that are
lost, sandboxes that end under a call. The real one has tests of its own with the same client.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import files_pb2, grant_pb2, process_pb2, sandbox_pb2
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError, to_status
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_sandbox_access import SANDBOX_SERVICE, SandboxClient

_Reason = errors_pb2.ErrorReason


def error(reason: str, message: str = "as the test wants", **metadata: str) -> MeshError:
    return MeshError(_Reason.Value(f"ERROR_REASON_{reason}"), message, metadata=metadata)


class StandIn:
    """The servicer.

    faults: errors that the next calls of a method raise, one each, before they do anything; of a
    stream, after its first answer. calls: how often each method was called. ends_under: an Exec
    after whose output the sandbox ends.
    """

    def __init__(self, folder: Path, instance_id: str = "boxes-0") -> None:
        self.folder = folder
        self.instance_id = instance_id
        self.faults: dict[str, list[MeshError]] = {}
        self.calls: Counter[str] = Counter()
        self.requests: list[Any] = []
        self.leases: dict[str, set[bytes]] = {}
        self.answers: dict[str, sandbox_pb2.CreateSandboxResponse] = {}
        self.executed: dict[str, list[process_pb2.ProcessEvent]] = {}
        self.renewed: Counter[bytes] = Counter()
        self.ends_under = ""
        self.used_unix_nano = 0
        self._called = asyncio.Event()

    async def until(self, method: str, times: int = 1) -> None:
        """Waits until a method was called so often."""
        async with asyncio.timeout(120):
            while self.calls[method] < times:
                self._called.clear()
                await self._called.wait()

    def lose(self, sandbox_id: str = "") -> None:
        """Sandboxes end by themselves: one, or all."""
        for one in [sandbox_id] if sandbox_id else list(self.leases):
            self.leases.pop(one, None)

    def _note(self, method: str, request: Any) -> None:
        self.calls[method] += 1
        self.requests.append(request)
        self._called.set()
        if "Sandbox" not in method[:6] and method not in ("Exec", "ReadFiles", "WaitProcess"):
            self._fault(method)

    def _fault(self, method: str) -> None:
        if self.faults.get(method):
            raise self.faults[method].pop(0)

    def _check(self, request: Any) -> Path:
        held = self.leases.get(request.sandbox_id)
        if held is None:
            raise error("SANDBOX_NOT_FOUND", "it ended", sandbox_id=request.sandbox_id)
        if request.lease not in held:
            raise error("SANDBOX_LEASE_INVALID", "another lease", sandbox_id=request.sandbox_id)
        return self.folder / str(request.sandbox_id)

    async def CreateSandbox(
        self, request: sandbox_pb2.CreateSandboxRequest, context: CallContext
    ) -> sandbox_pb2.CreateSandboxResponse:
        self._note("CreateSandbox", request)
        known = self.answers.get(request.request_id)
        if known is not None:
            return known
        sandbox_id = f"{self.instance_id}-b{len(self.answers)}"
        own, operate = secrets.token_bytes(16), secrets.token_bytes(16)
        self.leases[sandbox_id] = {own, operate}
        root = self.folder / sandbox_id
        root.mkdir(parents=True)
        for file in request.files:
            path = root / file.path.decode().lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)
        ref = grant_pb2.SandboxRef(
            sandbox_id=sandbox_id,
            service="boxes",
            instance_id=self.instance_id,
            image=request.image or "default",
        )
        self.answers[request.request_id] = answer = sandbox_pb2.CreateSandboxResponse(
            own_lease=own,
            grant=grant_pb2.SandboxGrant(
                sandbox=ref,
                lease=operate,
                expires_unix_nano=time.time_ns() + request.ttl_s * 10**9,
            ),
        )
        self._fault("CreateSandbox")  # the answer is lost
        return answer

    async def ForkSandbox(
        self, request: sandbox_pb2.ForkSandboxRequest, context: CallContext
    ) -> sandbox_pb2.ForkSandboxResponse:
        self._note("ForkSandbox", request)
        self._check(request)
        made = []
        for number in range(request.count):
            asked = sandbox_pb2.CreateSandboxRequest(request_id=f"{request.request_id}-{number}")
            made.append(await self.CreateSandbox(asked, context))
        return sandbox_pb2.ForkSandboxResponse(sandboxes=made)

    async def AttachSandbox(
        self, request: sandbox_pb2.AttachSandboxRequest, context: CallContext
    ) -> sandbox_pb2.AttachSandboxResponse:
        self._note("AttachSandbox", request)
        self._check(request)
        ref = grant_pb2.SandboxRef(sandbox_id=request.sandbox_id, instance_id=self.instance_id)
        return sandbox_pb2.AttachSandboxResponse(
            sandbox=sandbox_pb2.SandboxInfo(sandbox=ref, used_unix_nano=self.used_unix_nano),
            expires_unix_nano=time.time_ns() + 60 * 10**9,
        )

    async def RenewLease(
        self, request: sandbox_pb2.RenewLeaseRequest, context: CallContext
    ) -> sandbox_pb2.RenewLeaseResponse:
        self._note("RenewLease", request)
        self._check(request)
        self.renewed[request.lease] += 1
        return sandbox_pb2.RenewLeaseResponse()

    async def EndSandbox(
        self, request: sandbox_pb2.EndSandboxRequest, context: CallContext
    ) -> sandbox_pb2.EndSandboxResponse:
        self._note("EndSandbox", request)
        self.leases.pop(request.sandbox_id, None)
        return sandbox_pb2.EndSandboxResponse()

    async def SignalProcess(
        self, request: sandbox_pb2.SignalProcessRequest, context: CallContext
    ) -> sandbox_pb2.SignalProcessResponse:
        self._note("SignalProcess", request)
        return sandbox_pb2.SignalProcessResponse()

    async def Exec(
        self, request: sandbox_pb2.ExecRequest, context: CallContext
    ) -> AsyncIterator[sandbox_pb2.ExecResponse]:
        self._note("Exec", request)
        root = self._check(request)
        started = process_pb2.ProcessEvent(
            started=process_pb2.ProcessStarted(process_id=request.request_id)
        )
        yield sandbox_pb2.ExecResponse(event=started)
        if request.process.shell == "hang":
            await asyncio.Event().wait()
        if request.request_id not in self.executed:
            self.executed[request.request_id] = await self._executed(request, root)
        for event in self.executed[request.request_id]:
            yield sandbox_pb2.ExecResponse(event=event)
            self._fault("Exec")

    async def _executed(
        self, request: sandbox_pb2.ExecRequest, root: Path
    ) -> list[process_pb2.ProcessEvent]:
        words = list(request.process.argv.words) or [
            b"/bin/sh",
            b"-c",
            request.process.shell.encode(),
        ]
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=root,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, errors = await process.communicate(request.stdin)
        exited = process_pb2.ProcessExit(
            cause=process_pb2.EXIT_CAUSE_EXITED, exit_code=process.returncode
        )
        if request.process.shell and request.process.shell == self.ends_under:
            self.lose(request.sandbox_id)
            exited = process_pb2.ProcessExit(cause=process_pb2.EXIT_CAUSE_SANDBOX_ENDED)
        pieces = [out[:3], out[3:]]
        return [
            *(process_pb2.ProcessEvent(stdout=piece) for piece in pieces if piece),
            *(process_pb2.ProcessEvent(stderr=piece) for piece in [errors] if piece),
            process_pb2.ProcessEvent(exit=exited),
        ]

    async def WriteFiles(
        self, request: files_pb2.WriteFilesRequest, context: CallContext
    ) -> files_pb2.WriteFilesResponse:
        self._note("WriteFiles", request)
        root = self._check(request)
        for file in request.files:
            path = root / file.path.decode().lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            before = path.read_bytes()[: file.offset] if file.offset else b""
            path.write_bytes(before + file.content)
        return files_pb2.WriteFilesResponse()

    async def ReadFiles(
        self, request: files_pb2.ReadFilesRequest, context: CallContext
    ) -> AsyncIterator[files_pb2.ReadFilesResponse]:
        self._note("ReadFiles", request)
        root = self._check(request)
        for index, path in enumerate(request.paths):
            file = root / path.decode().lstrip("/")
            if not file.is_file():
                missing = to_status(error("SANDBOX_FILE_NOT_FOUND", f"no file {path!r}"))
                yield files_pb2.ReadFilesResponse(index=index, error=missing)
                continue
            yield files_pb2.ReadFilesResponse(index=index, content=file.read_bytes())
            self._fault("ReadFiles")
            info = files_pb2.FileInfo(path=path, kind=files_pb2.FILE_KIND_FILE)
            yield files_pb2.ReadFilesResponse(index=index, info=info)


def instance(service: StandIn, name: str = "boxes") -> discovery_pb2.Instance:
    return discovery_pb2.Instance(
        id=service.instance_id,
        service=SANDBOX_SERVICE,
        name=name,
        health=discovery_pb2.HEALTH_SERVING,
    )


@asynccontextmanager
async def client_of(*services: StandIn) -> AsyncIterator[SandboxClient]:
    directory = PeerDirectory()
    for service in services:
        directory.add_direct(instance(service), {SANDBOX_SERVICE: service})
    async with SandboxClient(directory, "boxes") as client:
        yield client
    await directory.close()
