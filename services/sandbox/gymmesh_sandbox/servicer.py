"""The RPCs of the sandbox service, with the names of the contract, which defines each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Final, TypeAlias

from gymmesh.sandbox.v1 import files_pb2, process_pb2, sandbox_pb2
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.contract import CONTRACT_VERSION
from gymmesh_runtime.errors import deadline_passed, field_invalid
from gymmesh_runtime.names import check_name
from gymmesh_runtime.timers import Limit, to_its_end
from gymmesh_sandbox import files
from gymmesh_sandbox.backends import SandboxBackend
from gymmesh_sandbox.config import SandboxConfig
from gymmesh_sandbox.errors import option_unsupported
from gymmesh_sandbox.leases import Lease, Right, Scope
from gymmesh_sandbox.live import LiveSandbox
from gymmesh_sandbox.processes import SandboxProcess
from gymmesh_sandbox.repeats import CallRepeats, digest_of
from gymmesh_sandbox.requests import check_call, check_signal, check_user, process_limits_of
from gymmesh_sandbox.sandboxes import Sandboxes
from gymmesh_sandbox.snapshots import Snapshots
from gymmesh_sandbox.timers import Clock

_PAGE: Final = 100
_LARGEST_PAGE: Final = 1000
_CALL_PORT_MS: Final = 60_000
_MILLISECONDS: Final = 1000
_FilesRequest: TypeAlias = (
    files_pb2.ReadFilesRequest
    | files_pb2.WriteFilesRequest
    | files_pb2.ListFilesRequest
    | files_pb2.ReadArchiveRequest
    | files_pb2.WriteArchiveRequest
)


class SandboxServicer:
    """SandboxService, over the sandboxes of one instance.

    Args:
        sandboxes: the instance's sandboxes.
        snapshots: the instance's snapshots.
        backend: runs the sandboxes.
        config: the service's configuration.
        clock: provides the time.
    """

    def __init__(
        self,
        sandboxes: Sandboxes,
        snapshots: Snapshots,
        backend: SandboxBackend,
        config: SandboxConfig,
        clock: Clock,
    ) -> None:
        self._sandboxes = sandboxes
        self._snapshots = snapshots
        self._backend = backend
        self._config = config
        self._clock = clock
        self._offer = sandboxes.offer

    async def GetService(
        self, request: sandbox_pb2.GetServiceRequest, context: CallContext
    ) -> sandbox_pb2.GetServiceResponse:
        places = self._sandboxes.places
        return sandbox_pb2.GetServiceResponse(
            instance_id=self._sandboxes.instance_id,
            contract_version=CONTRACT_VERSION,
            backend=self._backend.name,
            backend_version=self._backend.version,
            images=await self._backend.images(),
            default_image=self._offer.default_image,
            capabilities=self._offer.capabilities,
            limits=self._offer.limits,
            places=places.now,
            running=self._sandboxes.running,
            waiting=places.waiting,
        )

    async def CreateSandbox(
        self, request: sandbox_pb2.CreateSandboxRequest, context: CallContext
    ) -> sandbox_pb2.CreateSandboxResponse:
        return await self._sandboxes.create(request, context)

    async def AttachSandbox(
        self, request: sandbox_pb2.AttachSandboxRequest, context: CallContext
    ) -> sandbox_pb2.AttachSandboxResponse:
        live, lease = self._use(request.sandbox_id, request.lease, Right.ANY)
        return sandbox_pb2.AttachSandboxResponse(
            sandbox=live.info,
            own=lease.own,
            scope=lease.scope.message(),
            expires_unix_nano=self._clock.unix_of(lease.expires),
        )

    async def LendSandbox(
        self, request: sandbox_pb2.LendSandboxRequest, context: CallContext
    ) -> sandbox_pb2.LendSandboxResponse:
        check_name("request_id", request.request_id)
        check_name("role", request.role)
        check_name("scope.user", request.scope.user)
        live, lease = self._use(request.sandbox_id, request.lease, Right.ANY)

        async def act() -> sandbox_pb2.LendSandboxResponse:
            asked = request.scope
            folder = await files.folder_of_scope(live, lease, asked.folder)
            scope = Scope(read_only=asked.read_only, folder=folder, user=asked.user)
            secret, lent = live.leases.lend(lease, scope, request.ttl_s, self._clock.now())
            return sandbox_pb2.LendSandboxResponse(grant=live.grant(secret, lent, request.role))

        # Ids are apart for each lease: who guesses an id must not get what another lease gave.
        key = f"{lease.digest.hex()}\0{request.request_id}"
        return await live.lends.run(key, digest_of(request), act)

    async def RenewLease(
        self, request: sandbox_pb2.RenewLeaseRequest, context: CallContext
    ) -> sandbox_pb2.RenewLeaseResponse:
        live = self._sandboxes.get(request.sandbox_id)
        lease = live.leases.check(request.lease, Right.ANY, self._clock.now())
        live.leases.renew(lease, request.ttl_s, self._clock.now())
        return sandbox_pb2.RenewLeaseResponse(expires_unix_nano=self._clock.unix_of(lease.expires))

    async def RevokeLease(
        self, request: sandbox_pb2.RevokeLeaseRequest, context: CallContext
    ) -> sandbox_pb2.RevokeLeaseResponse:
        live = self._sandboxes.get(request.sandbox_id)
        if live.leases.revoke(request.lease):
            await self._end(live, "asked")
        return sandbox_pb2.RevokeLeaseResponse()

    async def EndSandbox(
        self, request: sandbox_pb2.EndSandboxRequest, context: CallContext
    ) -> sandbox_pb2.EndSandboxResponse:
        if (live := self._sandboxes.find(request.sandbox_id)) is not None:
            live.leases.check(request.lease, Right.OWN, self._clock.now())
            self._sandboxes.end(live, "asked")
        await self._sandboxes.wait_ended(request.sandbox_id)
        return sandbox_pb2.EndSandboxResponse()

    async def ListSandboxes(
        self, request: sandbox_pb2.ListSandboxesRequest, context: CallContext
    ) -> sandbox_pb2.ListSandboxesResponse:
        if request.page_size < 0:
            raise field_invalid("page_size", "is negative")
        size = min(request.page_size or _PAGE, _LARGEST_PAGE)
        rest = [one for one in self._sandboxes.all() if one.id > request.page_token]
        return sandbox_pb2.ListSandboxesResponse(
            sandboxes=[one.info for one in rest[:size]],
            next_page_token=rest[size - 1].id if len(rest) > size else "",
        )

    async def RemoveSandbox(
        self, request: sandbox_pb2.RemoveSandboxRequest, context: CallContext
    ) -> sandbox_pb2.RemoveSandboxResponse:
        if (live := self._sandboxes.find(request.sandbox_id)) is not None:
            self._sandboxes.end(live, "removed")
        await self._sandboxes.wait_ended(request.sandbox_id)
        return sandbox_pb2.RemoveSandboxResponse()

    async def Exec(
        self, request: sandbox_pb2.ExecRequest, context: CallContext
    ) -> AsyncIterator[sandbox_pb2.ExecResponse]:
        live, lease, spec = self._program(request)

        async def act() -> SandboxProcess:
            process = await self._start(live, spec, live.execs, request.request_id, stdin=False)
            process.give_stdin(request.stdin)
            return process

        process = await live.execs.run(request.request_id, digest_of(request), act)
        with live.in_use(lease):
            async with aclosing(process.events()) as events:
                async for event in events:
                    yield sandbox_pb2.ExecResponse(event=event)

    async def StartProcess(
        self, request: sandbox_pb2.StartProcessRequest, context: CallContext
    ) -> sandbox_pb2.StartProcessResponse:
        live, _, spec = self._program(request)
        act = partial(self._start, live, spec, live.starts, request.request_id, stdin=True)
        process = await live.starts.run(request.request_id, digest_of(request), act)
        return sandbox_pb2.StartProcessResponse(process_id=process.id)

    async def WriteStdin(
        self, request: sandbox_pb2.WriteStdinRequest, context: CallContext
    ) -> sandbox_pb2.WriteStdinResponse:
        live, _, process = self._process(request)
        with live.call():
            written = await process.write_stdin(
                request.offset, request.content, close=request.close
            )
        return sandbox_pb2.WriteStdinResponse(written=written)

    async def SignalProcess(
        self, request: sandbox_pb2.SignalProcessRequest, context: CallContext
    ) -> sandbox_pb2.SignalProcessResponse:
        check_signal(request.signal)
        live, _, process = self._process(request)
        with live.call():
            await process.signal(request.signal, descendants=request.descendants)
        return sandbox_pb2.SignalProcessResponse()

    async def WaitProcess(
        self, request: sandbox_pb2.WaitProcessRequest, context: CallContext
    ) -> AsyncIterator[sandbox_pb2.WaitProcessResponse]:
        live, lease, process = self._process(request)
        heard = process.events(request.stdout_offset, request.stderr_offset)
        with live.in_use(lease):
            async with aclosing(heard) as events:
                async for event in events:
                    yield sandbox_pb2.WaitProcessResponse(event=event)

    async def GetProcess(
        self, request: sandbox_pb2.GetProcessRequest, context: CallContext
    ) -> sandbox_pb2.GetProcessResponse:
        live, _, process = self._process(request)
        with live.call():
            threads = await process.threads()
        return sandbox_pb2.GetProcessResponse(exit=process.exit, threads=threads)

    async def CallPort(
        self, request: sandbox_pb2.CallPortRequest, context: CallContext
    ) -> sandbox_pb2.CallPortResponse:
        check_name("request_id", request.request_id)
        check_call(request)
        live, _ = self._use(request.sandbox_id, request.lease, Right.PROGRAMS)
        if not self._offer.capabilities.ports:
            raise option_unsupported("CallPort", self._offer.backend)

        async def act() -> sandbox_pb2.CallPortResponse:
            seconds = (request.timeout_ms or _CALL_PORT_MS) / _MILLISECONDS
            limit = Limit(seconds)
            try:
                with limit, live.call():
                    return await live.running.call_port(request, self._config.max_port_bytes)
            except TimeoutError:
                if limit.expired:
                    raise deadline_passed(context.method) from None
                raise

        return await live.port_calls.run(request.request_id, digest_of(request), act)

    async def ReadFiles(
        self, request: files_pb2.ReadFilesRequest, context: CallContext
    ) -> AsyncIterator[files_pb2.ReadFilesResponse]:
        live, lease = self._uses_files(request, Right.READ)
        async with aclosing(files.read_files(live, lease, request)) as responses:
            async for response in responses:
                yield response

    async def WriteFiles(
        self, request: files_pb2.WriteFilesRequest, context: CallContext
    ) -> files_pb2.WriteFilesResponse:
        live, lease = self._uses_files(request, Right.FILES)
        await files.write_files(live, lease, request)
        return files_pb2.WriteFilesResponse()

    async def ListFiles(
        self, request: files_pb2.ListFilesRequest, context: CallContext
    ) -> files_pb2.ListFilesResponse:
        live, lease = self._uses_files(request, Right.READ)
        return await files.list_files(live, lease, request)

    async def ReadArchive(
        self, request: files_pb2.ReadArchiveRequest, context: CallContext
    ) -> AsyncIterator[files_pb2.ReadArchiveResponse]:
        live, lease = self._uses_files(request, Right.READ)
        most = self._config.max_archive_bytes
        async with aclosing(files.read_archive(live, lease, request, most)) as responses:
            async for response in responses:
                yield response

    async def WriteArchive(
        self, request: files_pb2.WriteArchiveRequest, context: CallContext
    ) -> files_pb2.WriteArchiveResponse:
        check_name("request_id", request.request_id)
        live, lease = self._uses_files(request, Right.FILES)
        most = self._config.max_archive_bytes
        received = await files.write_archive(live, lease, request, most)
        return files_pb2.WriteArchiveResponse(received=received)

    async def SnapshotSandbox(
        self, request: sandbox_pb2.SnapshotSandboxRequest, context: CallContext
    ) -> sandbox_pb2.SnapshotSandboxResponse:
        check_name("request_id", request.request_id)
        live, _ = self._use(request.sandbox_id, request.lease, Right.OWN)
        if not self._offer.capabilities.snapshots:
            raise option_unsupported("SnapshotSandbox", self._offer.backend)

        async def act() -> sandbox_pb2.SnapshotSandboxResponse:
            with live.call():
                image = await self._snapshots.take(live.running, request.name, request.ttl_s)
            return sandbox_pb2.SnapshotSandboxResponse(image=image)

        return await live.snapshots.run(request.request_id, digest_of(request), act)

    async def DeleteSnapshot(
        self, request: sandbox_pb2.DeleteSnapshotRequest, context: CallContext
    ) -> sandbox_pb2.DeleteSnapshotResponse:
        await self._snapshots.delete(request.name)
        return sandbox_pb2.DeleteSnapshotResponse()

    async def ForkSandbox(
        self, request: sandbox_pb2.ForkSandboxRequest, context: CallContext
    ) -> sandbox_pb2.ForkSandboxResponse:
        check_name("request_id", request.request_id)
        live, _ = self._use(request.sandbox_id, request.lease, Right.OWN)
        if not self._offer.capabilities.forks:
            raise option_unsupported("ForkSandbox", self._offer.backend)

        async def act() -> sandbox_pb2.ForkSandboxResponse:
            with live.call():
                image = await self._snapshots.take(live.running)
                try:
                    return await self._sandboxes.fork(live, request, image.name, context)
                finally:
                    await to_its_end(self._snapshots.delete(image.name))

        return await live.forks.run(request.request_id, digest_of(request), act)

    def _use(
        self, sandbox_id: str, secret: bytes, right: Right, user: str = ""
    ) -> tuple[LiveSandbox, Lease]:
        """The sandbox of a call and its lease, if the lease has the right."""
        live = self._sandboxes.get(sandbox_id)
        lease = live.leases.check(secret, right, self._clock.now(), user=user)
        live.note_use(lease)
        return live, lease

    def _uses_files(self, request: _FilesRequest, right: Right) -> tuple[LiveSandbox, Lease]:
        live, lease = self._use(request.sandbox_id, request.lease, right, request.user)
        check_user(request.user or lease.scope.user, live.running.user, self._offer, "user")
        return live, lease

    def _process(
        self,
        request: sandbox_pb2.WriteStdinRequest
        | sandbox_pb2.SignalProcessRequest
        | sandbox_pb2.WaitProcessRequest
        | sandbox_pb2.GetProcessRequest,
    ) -> tuple[LiveSandbox, Lease, SandboxProcess]:
        live, lease = self._use(request.sandbox_id, request.lease, Right.PROGRAMS)
        return live, lease, live.processes.get(request.process_id)

    def _program(
        self, request: sandbox_pb2.ExecRequest | sandbox_pb2.StartProcessRequest
    ) -> tuple[LiveSandbox, Lease, process_pb2.ProcessSpec]:
        """The sandbox of a call that starts a process, its lease, and the process as the lease
        permits it.
        """
        check_name("request_id", request.request_id)
        spec = request.process
        live, lease = self._use(request.sandbox_id, request.lease, Right.PROGRAMS, spec.user)
        if lease.scope.user and not spec.user:
            spec = process_pb2.ProcessSpec()
            spec.CopyFrom(request.process)
            spec.user = lease.scope.user
        check_user(spec.user, live.running.user, self._offer, "process.user")
        return live, lease, spec

    async def _start(
        self,
        live: LiveSandbox,
        spec: process_pb2.ProcessSpec,
        repeats: CallRepeats[SandboxProcess],
        request_id: str,
        *,
        stdin: bool,
    ) -> SandboxProcess:
        return await live.start(
            spec,
            process_limits_of(spec, self._offer, field="process"),
            takes_stdin=stdin,
            on_forgotten=partial(repeats.forget, request_id),
        )

    async def _end(self, live: LiveSandbox, cause: str) -> None:
        self._sandboxes.end(live, cause)
        await self._sandboxes.wait_ended(live.id)
