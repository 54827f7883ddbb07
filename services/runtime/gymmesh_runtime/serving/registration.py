"""Keeping an instance registered over a DiscoveryService.

A background task with bounded waits. It retries an unreachable registry with a growing pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Final, Protocol

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.timers import cancel_and_wait

_log = logging.getLogger("gymmesh.discovery")

_CALL_TIMEOUT_S: Final = 5.0
#: How long an instance stays listed that is not renewed, in seconds.
LEASE_S: Final = 15
_STOP_S: Final = 1.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_REGISTRY_AWAY: Final = (
    errors_pb2.ERROR_REASON_PEER_UNAVAILABLE,
    errors_pb2.ERROR_REASON_DEADLINE_PASSED,
)
_EXISTS: Final = errors_pb2.ERROR_REASON_INSTANCE_EXISTS


class DiscoveryPeer(Protocol):
    """The RPCs of DiscoveryService that the runtime itself calls."""

    async def Register(
        self, request: discovery_pb2.RegisterRequest, *, timeout: float
    ) -> discovery_pb2.RegisterResponse: ...

    async def Renew(
        self, request: discovery_pb2.RenewRequest, *, timeout: float
    ) -> discovery_pb2.RenewResponse: ...

    async def Deregister(
        self, request: discovery_pb2.DeregisterRequest, *, timeout: float
    ) -> discovery_pb2.DeregisterResponse: ...

    def WatchInstances(
        self, request: discovery_pb2.WatchInstancesRequest, *, timeout: float
    ) -> AsyncIterator[discovery_pb2.WatchInstancesResponse]: ...


class Registration:
    """One instance's lease: requested, renewed at a third of its length, and ended.

    Args:
        moved: the same instance was listed at another address. The registry treats the id as
            another instance's until that lease expires, so registering is retried.
    """

    def __init__(
        self, discovery: DiscoveryPeer, instance: discovery_pb2.Instance, *, moved: bool = False
    ) -> None:
        self._discovery = discovery
        self._instance = instance
        self._passing = (*_REGISTRY_AWAY, *((_EXISTS,) if moved else ()))
        self._lease_id = ""
        self._lease_s = LEASE_S
        self._away = ""  # why it could not register yet
        self._health: discovery_pb2.Health.ValueType = (
            instance.health or discovery_pb2.HEALTH_SERVING
        )
        self._changed = False  # the instance, since the registry learned of it
        self._one_call = asyncio.Lock()  # a call under an old lease says nothing
        self._woken = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None

    async def start(self, timeout: float) -> None:
        """Registers, retrying for up to ``timeout`` seconds, and starts renewing.

        Raises TimeoutError if the registry is unreachable, and any other error that the registry
        answers, such as INSTANCE_EXISTS.
        """
        self._away = "the registry is unreachable"
        try:
            async with asyncio.timeout(timeout):
                await self._register_patiently()
        except TimeoutError:
            raise TimeoutError(
                f"the instance '{self._instance.id}' could not register within {timeout:.0f} s: "
                f"{self._away}"
            ) from None
        self._renewing = asyncio.create_task(self._renew_forever())

    async def _register_patiently(self) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return await self._register()
            except MeshError as error:
                if error.reason not in self._passing:
                    raise
                self._away = f"the registry is unreachable ({error.message})"
                if error.reason == _EXISTS:
                    self._away = error.message
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def drain(self) -> None:
        """Tells the registry that this instance accepts no new calls.

        Also tells a registry that no longer has the lease, because its watchers may still list this
        instance.
        """
        self._health = discovery_pb2.HEALTH_DRAINING  # renewals during the drain say so too
        with contextlib.suppress(MeshError):
            async with self._one_call:
                await self._renew_or_register()

    def renew_soon(self) -> None:
        """Renews now, without waiting for the next renewal. Registers again if the registry lost
        the lease.
        """
        self._woken.set()

    def register_soon(self) -> None:
        """Registers the instance again under its lease now, because its description changed."""
        self._changed = True
        self._woken.set()

    async def stop(self) -> None:
        """Stops renewing and ends the lease. An unreachable registry is ignored."""
        # A registration under way is let finish: cut off, its lease would be lost
        # and the instance listed until that ran out.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S), self._one_call:
                await cancel_and_wait(self._renewing)
        await cancel_and_wait(self._renewing)
        self._renewing = None
        if self._lease_id:
            request = discovery_pb2.DeregisterRequest(lease_id=self._lease_id)
            with contextlib.suppress(MeshError):
                await self._discovery.Deregister(request, timeout=_STOP_S)
            self._lease_id = ""

    async def _register(self) -> None:
        request = discovery_pb2.RegisterRequest(
            instance=self._instance, lease_s=LEASE_S, lease_id=self._lease_id
        )
        request.instance.health = self._health
        self._changed = False  # a change from here on is registered next
        try:
            reply = await self._discovery.Register(request, timeout=_CALL_TIMEOUT_S)
        except MeshError:
            self._changed = True
            raise
        self._lease_id, self._lease_s = reply.lease_id, reply.lease_s

    async def _renew(self) -> None:
        request = discovery_pb2.RenewRequest(lease_id=self._lease_id, health=self._health)
        await self._discovery.Renew(request, timeout=_CALL_TIMEOUT_S)

    async def _renew_forever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.2, self._lease_s / 3)):
                    await self._woken.wait()
            self._woken.clear()
            try:
                async with self._one_call:
                    await self._renew_or_register()
            except MeshError as error:
                _log.warning(
                    "could not renew the lease of %s in the registry: %s; this process tries again",
                    self._instance.id,
                    error,
                )

    async def _renew_or_register(self) -> None:
        if self._lease_id and not self._changed:
            try:
                return await self._renew()
            except MeshError as error:
                if error.reason != errors_pb2.ERROR_REASON_LEASE_NOT_FOUND:
                    raise
                self._lease_id = ""
        await self._register()
