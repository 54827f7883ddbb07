"""A client of one sandbox service: creates sandboxes, attaches to lent ones, and ends its own.

async with SandboxClient(directory, "boxes") as boxes:
    sandbox = await boxes.create(SandboxSpec(image="python:3.12"))
    print((await sandbox.exec("python -c 'print(6 * 7)'")).text)
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import grant_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.timers import caller_waits_s
from gymmesh_sandbox_access.calls import SANDBOX_SERVICE, InstanceCalls
from gymmesh_sandbox_access.connection import (
    OpenedSandbox,
    SandboxConnection,
    SandboxUse,
    lost,
)
from gymmesh_sandbox_access.handle import SandboxHandle
from gymmesh_sandbox_access.spec import RolloutAgent, SandboxSpec

_Reason = errors_pb2.ErrorReason
# Another instance may do what this one did not: nothing was made here.
_ELSEWHERE: Final = frozenset(
    (
        _Reason.ERROR_REASON_SANDBOX_LIMIT,
        _Reason.ERROR_REASON_SANDBOX_IMAGE_NOT_FOUND,
        _Reason.ERROR_REASON_DRAINING,
        _Reason.ERROR_REASON_PEER_UNAVAILABLE,
        _Reason.ERROR_REASON_MUX_BROKEN,
    )
)
_PICK_S: Final = 10.0
_CALL_S: Final = 30.0
# Seconds to start where the spec does not say, and those to wait for a place before.
_START_S: Final = 600.0
_PLACE_S: Final = 600.0
# Seconds before the caller gives up, so that it still gets the error that says why.
_MARGIN_S: Final = 1.0
# Of a lease whose end is not known: seconds.
_SHORT_S: Final = 30.0


class SandboxClient:
    """Sandboxes of the service `name`. The sandboxes that the client created end with it.

    Create the client in a running event loop.
    """

    def __init__(self, directory: PeerDirectory, name: str = "sandbox") -> None:
        self._directory = directory
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._connections: set[SandboxConnection] = set()

    async def __aenter__(self) -> SandboxClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the sandboxes that this client created, and stops renewing the leases of others.
        Takes bounded time.
        """
        await asyncio.gather(*(one.end() for one in list(self._connections)))

    def sandbox(
        self,
        spec: SandboxSpec,
        *,
        rollout_id: str = "",
        attempt: int = 0,
        agent: RolloutAgent | None = None,
        use: SandboxUse | None = None,
    ) -> SandboxHandle:
        """A sandbox that is created on first use. Raises ValueError for an invalid spec.

        agent: the rollout's agent, for the network `agent`.
        """
        request = spec.request(uuid.uuid4().hex, agent)
        request.rollout_id, request.attempt = rollout_id, attempt

        use = use or SandboxUse()

        async def open() -> OpenedSandbox:
            try:
                return await self._create(request, use)
            except MeshError as error:
                raise spec.explained(error) from None

        return self._handle(open, use)

    async def create(self, spec: SandboxSpec, *, rollout_id: str = "") -> SandboxHandle:
        """Creates a sandbox now. Raises MeshError as CreateSandbox does."""
        handle = self.sandbox(spec, rollout_id=rollout_id)
        await handle.open()
        return handle

    def attach(
        self, grant: grant_pb2.SandboxGrant, *, own: bool = False, use: SandboxUse | None = None
    ) -> SandboxHandle:
        """A sandbox that was lent, attached on first use.

        own: whether the lease is the own lease, which may end the sandbox.
        """
        instance = discovery_pb2.Instance(
            id=grant.sandbox.instance_id,
            service=SANDBOX_SERVICE,
            name=grant.sandbox.service or self._name,
        )

        use = use or SandboxUse(lent=not own)

        async def open() -> OpenedSandbox:
            return await self._attach(grant, instance, use, own=own)

        return self._handle(open, use)

    async def about(self) -> sandbox_pb2.GetServiceResponse:
        """What an instance of the service supports, and how many places are free."""
        instance = await self._pick(_PICK_S)
        answer: sandbox_pb2.GetServiceResponse = await InstanceCalls(
            self._directory, instance
        ).call(lambda peer: peer.GetService, sandbox_pb2.GetServiceRequest(), _CALL_S)
        return answer

    async def list(self) -> list[sandbox_pb2.SandboxInfo]:
        """The sandboxes of all instances."""
        await self._pick(_PICK_S)
        found: list[sandbox_pb2.SandboxInfo] = []
        for instance in self._instances():
            calls = InstanceCalls(self._directory, instance)
            request = sandbox_pb2.ListSandboxesRequest()
            while True:
                page = await calls.call(lambda peer: peer.ListSandboxes, request, _CALL_S)
                found += page.sandboxes
                request.page_token = page.next_page_token
                if not request.page_token:
                    break
        return found

    async def remove(self, sandbox_id: str) -> bool:
        """Ends a sandbox without its lease, at any instance; for operators.

        Returns whether the sandbox existed.
        """
        request = sandbox_pb2.RemoveSandboxRequest(sandbox_id=sandbox_id)
        for info in await self.list():
            if info.sandbox.sandbox_id == sandbox_id:
                await self._remove(info.sandbox.instance_id, request)
                return True
        return False

    async def _remove(self, instance_id: str, request: sandbox_pb2.RemoveSandboxRequest) -> None:
        for instance in self._instances():
            if instance.id == instance_id:
                calls = InstanceCalls(self._directory, instance)
                await calls.call(lambda peer: peer.RemoveSandbox, request, _CALL_S)

    def _handle(
        self, open: Callable[[], Awaitable[OpenedSandbox]], use: SandboxUse
    ) -> SandboxHandle:
        ended = self._connections.discard
        connection = SandboxConnection(open, self._loop, ended=ended, use=use)
        self._connections.add(connection)

        def forked(parent: OpenedSandbox, made: sandbox_pb2.CreateSandboxResponse) -> SandboxHandle:
            async def open() -> OpenedSandbox:
                return _opened(parent.calls, made, parent.ttl_s)

            return self._handle(open, use)

        return SandboxHandle(connection, forked)

    async def _create(
        self, request: sandbox_pb2.CreateSandboxRequest, use: SandboxUse
    ) -> OpenedSandbox:
        """Creates the sandbox at an instance that has room. Raises MeshError."""
        start_s = use.within((request.start_timeout_s or _START_S) + _PLACE_S)
        end = time.monotonic() + min(start_s, max(caller_waits_s() - _MARGIN_S, _MARGIN_S))
        tried: list[str] = []
        try:
            instance = await self._pick(min(end - time.monotonic(), _PICK_S))
            while True:
                calls = InstanceCalls(self._directory, instance)
                try:
                    made = await calls.call(
                        lambda peer: peer.CreateSandbox, request, end - time.monotonic()
                    )
                    return _opened(calls, made, request.ttl_s)
                except MeshError as error:
                    tried.append(instance.id)
                    others = [one for one in self._instances() if one.id not in tried]
                    if error.reason not in _ELSEWHERE or not others:
                        raise
                    instance = others[0]
        except MeshError as error:
            if error.reason == _Reason.ERROR_REASON_DEADLINE_PASSED:
                raise MeshError(
                    _Reason.ERROR_REASON_SANDBOX_START_TIMEOUT,
                    f"the sandbox service {self._name!r} had no sandbox ready within {start_s:g} s",
                    metadata={"timeout_s": f"{start_s:g}"},
                ) from None
            raise lost(error, "") from None

    async def _attach(
        self,
        grant: grant_pb2.SandboxGrant,
        instance: discovery_pb2.Instance,
        use: SandboxUse,
        *,
        own: bool,
    ) -> OpenedSandbox:
        found = await self._directory.find(
            SANDBOX_SERVICE, instance.name, instance.id, timeout=use.within(_PICK_S)
        )
        if found is None:
            raise _unknown(grant.sandbox)
        calls = InstanceCalls(self._directory, found)
        request = sandbox_pb2.AttachSandboxRequest(
            sandbox_id=grant.sandbox.sandbox_id, lease=grant.lease
        )
        try:
            answer: sandbox_pb2.AttachSandboxResponse = await calls.call(
                lambda peer: peer.AttachSandbox, request, use.within(_CALL_S)
            )
        except MeshError as error:
            raise lost(error, grant.sandbox.sandbox_id) from None
        return OpenedSandbox(
            calls,
            answer.sandbox.sandbox,
            grant.lease,
            own or answer.own,
            _lasts(answer.expires_unix_nano),
            resources=answer.sandbox.resources,
            user=answer.sandbox.user,
            workdir=grant.workdir or answer.sandbox.workdir,
        )

    async def _pick(self, timeout_s: float) -> discovery_pb2.Instance:
        return await self._directory.pick(SANDBOX_SERVICE, self._name, timeout=timeout_s)

    def _instances(self) -> Sequence[discovery_pb2.Instance]:
        return self._directory.serving(SANDBOX_SERVICE, self._name)


def _unknown(sandbox: grant_pb2.SandboxRef) -> MeshError:
    return MeshError(
        _Reason.ERROR_REASON_SANDBOX_LOST,
        f"the sandbox {sandbox.sandbox_id} is unreachable: this process can't find the instance "
        f"{sandbox.instance_id!r} of the sandbox service {sandbox.service!r}. The instance has "
        "ended, or runs inside another process. Configure a sandbox service under `sandboxes`: "
        "all processes can reach that service",
        metadata={"sandbox_id": sandbox.sandbox_id, "cause": "unknown"},
    )


def _opened(
    calls: InstanceCalls, made: sandbox_pb2.CreateSandboxResponse, ttl_s: float
) -> OpenedSandbox:
    return OpenedSandbox(
        calls,
        made.grant.sandbox,
        made.own_lease,
        True,
        ttl_s or _lasts(made.grant.expires_unix_nano),
        made.grant,
        made.resources,
        made.user,
        made.grant.workdir,
    )


def _lasts(expires_unix_nano: int) -> float:
    """Seconds that a lease lasts, by this machine's clock. The service's clock may differ, so
    the result is never long, and the lease is renewed in time.
    """
    left_s = expires_unix_nano / 1e9 - time.time()
    return min(max(left_s, 1.0), _SHORT_S)
