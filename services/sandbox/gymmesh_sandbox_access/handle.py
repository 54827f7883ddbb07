"""A sandbox as its users see it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from gymmesh.sandbox.v1 import grant_pb2, sandbox_pb2
from gymmesh_sandbox_access.connection import OpenedSandbox, SandboxConnection
from gymmesh_sandbox_access.files import SandboxFiles
from gymmesh_sandbox_access.processes import (
    MARGIN_S,
    ExecResult,
    OnOutput,
    ProcessHandle,
    SandboxCommand,
    executed,
    process_spec,
)
from gymmesh_sandbox_access.spec import content_bytes

T = TypeVar("T")
_START_S: Final = 660.0
_SNAPSHOT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class PortResponse:
    """The answer of an HTTP server in a sandbox."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class SandboxHandle:
    """A sandbox: programs, files, ports, snapshots, and its end. It opens on first use.

    Methods raise MeshError with a reason of the contract (`SANDBOX_…`). SANDBOX_LOST means that the
    sandbox or its service is gone. A rollout in which this error is not caught fails at the
    boundary SANDBOX.

    files: the sandbox's files.
    """

    def __init__(
        self,
        connection: SandboxConnection,
        forked: Callable[[OpenedSandbox, sandbox_pb2.CreateSandboxResponse], SandboxHandle],
    ) -> None:
        self._connection = connection
        self._forked = forked
        self.files = SandboxFiles(connection)

    def __repr__(self) -> str:
        opened = self._connection.opened
        return f"<SandboxHandle {opened.ref.sandbox_id if opened is not None else 'not open'}>"

    async def open(self) -> grant_pb2.SandboxRef:
        """Opens the sandbox if it is not open. The returned reference gives no access, so it is
        safe to store.
        """
        return (await self._connection.ready()).ref

    async def about(self) -> sandbox_pb2.AttachSandboxResponse:
        """The service's description of the sandbox and of the lease used here."""
        answer: sandbox_pb2.AttachSandboxResponse = await self._connection.call(
            lambda peer: peer.AttachSandbox, sandbox_pb2.AttachSandboxRequest()
        )
        return answer

    async def exec(
        self,
        command: SandboxCommand,
        *,
        stdin: str | bytes = b"",
        timeout_s: float = 60.0,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        user: str = "",
        output_bytes: int = 0,
        on_output: OnOutput | None = None,
    ) -> ExecResult:
        """Runs a program to its end: a line for `/bin/sh`, or a list of the program and its
        arguments.

        timeout_s: seconds after which the program is killed, with all its descendants.
        output_bytes: the maximum bytes of each stream that are kept; 0: the service's default.
        on_output: receives the output as it arrives.
        """
        spec = process_spec(
            command,
            timeout_s=timeout_s,
            cwd=cwd,
            env=env,
            user=user,
            output_bytes=output_bytes,
        )
        request = sandbox_pb2.ExecRequest(
            request_id=_new_id(), process=spec, stdin=content_bytes(stdin)
        )
        return await executed(self._connection, request, on_output)

    async def start(
        self,
        command: SandboxCommand,
        *,
        timeout_s: float = 0.0,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        user: str = "",
        output_bytes: int = 0,
    ) -> ProcessHandle:
        """Starts a program that keeps running, such as a server or a shell.

        timeout_s: seconds after which the program is killed; 0: it may run as long as the sandbox.
        """
        spec = process_spec(
            command,
            timeout_s=timeout_s,
            cwd=cwd,
            env=env,
            user=user,
            output_bytes=output_bytes,
        )
        request = sandbox_pb2.StartProcessRequest(request_id=_new_id(), process=spec)
        answer = await self._connection.call(lambda peer: peer.StartProcess, request)
        return ProcessHandle(self._connection, answer.process_id)

    async def call_port(
        self,
        port: int,
        path: str = "/",
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: str | bytes = b"",
        timeout_s: float = 60.0,
    ) -> PortResponse:
        """Calls an HTTP server that listens in the sandbox. Raises SANDBOX_PORT_UNREACHABLE."""
        request = sandbox_pb2.CallPortRequest(
            request_id=_new_id(),
            port=port,
            method=method,
            path=path,
            headers=[
                sandbox_pb2.HttpHeader(name=name, value=value.encode())
                for name, value in (headers or {}).items()
            ],
            body=content_bytes(body),
            timeout_ms=max(round(timeout_s * 1000), 1),
        )
        answer: sandbox_pb2.CallPortResponse = await self._connection.call(
            lambda peer: peer.CallPort, request, timeout_s + MARGIN_S
        )
        found = ((one.name, one.value.decode("latin-1")) for one in answer.headers)
        return PortResponse(answer.status, tuple(found), answer.body)

    async def snapshot(self, name: str = "", *, ttl_s: int = 0) -> sandbox_pb2.Image:
        """Saves the sandbox's file system as an image for other sandboxes (`SandboxSpec.image`)."""
        request = sandbox_pb2.SnapshotSandboxRequest(request_id=_new_id(), name=name, ttl_s=ttl_s)
        answer = await self._connection.call(
            lambda peer: peer.SnapshotSandbox, request, _SNAPSHOT_S
        )
        image: sandbox_pb2.Image = answer.image
        return image

    async def fork(self, count: int = 1) -> list[SandboxHandle]:
        """Creates sandboxes that start with a copy of this one's files. The caller ends them.

        Their leases are renewed from now on, even while nobody uses them.
        """
        opened = await self._connection.ready()
        request = sandbox_pb2.ForkSandboxRequest(request_id=_new_id(), count=count)
        answer = await self._connection.call(lambda peer: peer.ForkSandbox, request, _START_S)
        forks = [self._forked(opened, made) for made in answer.sandboxes]
        for fork in forks:
            await fork.open()
        return forks

    async def grant(self, role: str) -> grant_pb2.SandboxGrant:
        """A grant with which another service can work in the sandbox while its lease is renewed
        here.

        A grant has a secret, so pass it on only in requests and answers.
        """
        opened = await self._connection.ready()
        if opened.operate is None:
            return await self.lend(role)
        grant = grant_pb2.SandboxGrant()
        grant.CopyFrom(opened.operate)
        grant.role = role
        grant.workdir = grant.workdir or opened.workdir
        return grant

    async def lend(
        self,
        role: str,
        *,
        read_only: bool = False,
        folder: str = "",
        user: str = "",
        ttl_s: int = 0,
    ) -> grant_pb2.SandboxGrant:
        """Creates a lease that permits less, and that its holder renews. See LendSandbox in the
        contract.
        """
        request = sandbox_pb2.LendSandboxRequest(
            request_id=_new_id(),
            scope=sandbox_pb2.LeaseScope(read_only=read_only, folder=folder, user=user),
            ttl_s=ttl_s,
            role=role,
        )
        answer = await self._connection.call(lambda peer: peer.LendSandbox, request)
        grant: grant_pb2.SandboxGrant = answer.grant
        return grant

    async def revoke(self, grant: grant_pb2.SandboxGrant) -> None:
        """Ends a lent lease, and all leases derived from it."""
        opened = await self._connection.ready()
        request = sandbox_pb2.RevokeLeaseRequest(
            sandbox_id=opened.ref.sandbox_id, lease=grant.lease
        )
        await opened.calls.call(lambda peer: peer.RevokeLease, request, MARGIN_S)

    async def end(self) -> None:
        """Ends the sandbox. Raises no MeshError. Raises RuntimeError if the sandbox was lent,
        because only its owner ends it.
        """
        if self._connection.lent:
            raise RuntimeError(
                "this sandbox was lent, so only the sandbox's owner can end it; to stop using the "
                "sandbox, call leave()"
            )
        await self._connection.end()

    async def renewed_lease(self) -> bytes:
        """Renews the lease used here and returns it, for another holder. It is a secret."""
        opened = await self._connection.ready()
        await self._connection.call(lambda peer: peer.RenewLease, sandbox_pb2.RenewLeaseRequest())
        return opened.lease

    async def leave(self) -> None:
        """Stops renewing the lease and leaves the sandbox running for another holder of the
        lease.
        """
        await self._connection.end(let_go=True)

    def from_thread(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine of this sandbox, for a plain method, which runs in a thread:
        `sandbox.from_thread(sandbox.exec("ls"))`.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            # The coroutine has its own bound.
            return asyncio.run_coroutine_threadsafe(work, self._connection.loop).result()
        work.close()
        raise RuntimeError(
            "`from_thread` would block the event loop; in an async method, await the sandbox's "
            "method instead"
        )


def _new_id() -> str:
    return uuid.uuid4().hex
