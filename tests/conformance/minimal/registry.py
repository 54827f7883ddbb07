"""A minimal registry: instances by id, each with its lease and when that runs out."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import grpc

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh.discovery.v1 import discovery_pb2_grpc
from tests.conformance.minimal.status import fail, require

_DISCOVERY: Final = "gymmesh.discovery.v1.DiscoveryService"
_LONGEST_S: Final = 60
_MOST_BYTES: Final = 65_536
_SWEEP_S: Final = 0.5


@dataclass
class _Listed:
    instance: pb.Instance
    lease_id: str
    lease_s: int
    ends: float


class Registry(discovery_pb2_grpc.DiscoveryServiceServicer):
    """The registry. A change is a version and what watchers are sent of it."""

    def __init__(self) -> None:
        self._listed: dict[str, _Listed] = {}
        self._version = 0
        self._watchers: set[asyncio.Queue[tuple[int, pb.Instance | None, pb.Instance | None]]] = (
            set()
        )

    async def Register(self, request: Any, context: Any) -> Any:
        """Lists an instance."""
        method = f"{_DISCOVERY}/Register"
        await require(context, request, method, "instance")
        for name in ("id", "service", "name", "address"):
            if not getattr(request.instance, name):
                code = grpc.StatusCode.INVALID_ARGUMENT
                details = {"field": f"instance.{name}", "method": method}
                await fail(context, code, "REQUIRED_FIELD_MISSING", "not set", **details)
        await self._check(request.instance, context)
        self._sweep()
        known = self._listed.get(request.instance.id)
        mine = known is None or request.lease_id == known.lease_id
        if not mine and known is not None and _place(known.instance) != _place(request.instance):
            code = grpc.StatusCode.ALREADY_EXISTS
            details = {"instance_id": request.instance.id}
            await fail(context, code, "INSTANCE_EXISTS", "another one is listed", **details)
        instance = pb.Instance()
        instance.CopyFrom(request.instance)
        if instance.health not in (pb.HEALTH_NOT_SERVING, pb.HEALTH_DRAINING):
            instance.health = pb.HEALTH_SERVING
        lease_s = min(request.lease_s or _LONGEST_S, _LONGEST_S)
        listed = _Listed(instance, secrets.token_hex(16), lease_s, time.monotonic() + lease_s)
        self._listed[instance.id] = listed
        self._changed(None if known is None else known.instance, instance)
        return pb.RegisterResponse(lease_id=listed.lease_id, lease_s=lease_s)

    async def Renew(self, request: Any, context: Any) -> Any:
        """Extends a lease."""
        await require(context, request, f"{_DISCOVERY}/Renew", "lease_id")
        self._sweep()
        listed = self._of_lease(request.lease_id)
        if listed is None:
            code = grpc.StatusCode.NOT_FOUND
            await fail(context, code, "LEASE_NOT_FOUND", "there is no such lease")
        listed.ends = time.monotonic() + listed.lease_s
        if request.health in (pb.HEALTH_SERVING, pb.HEALTH_NOT_SERVING, pb.HEALTH_DRAINING):
            before, after = listed.instance, pb.Instance()
            after.CopyFrom(before)
            after.health = request.health
            listed.instance = after
            self._changed(before, after)
        return pb.RenewResponse(lease_s=listed.lease_s)

    async def Deregister(self, request: Any, context: Any) -> Any:
        """Gives a lease back."""
        await require(context, request, f"{_DISCOVERY}/Deregister", "lease_id")
        listed = self._of_lease(request.lease_id)
        if listed is not None:
            del self._listed[listed.instance.id]
            self._changed(listed.instance, None)
        return pb.DeregisterResponse()

    async def ListInstances(self, request: Any, context: Any) -> Any:
        """A page; the token is the last id of the page before."""
        if request.page_size < 0:
            code = grpc.StatusCode.INVALID_ARGUMENT
            await fail(context, code, "FIELD_INVALID", "negative", field="page_size")
        self._sweep()
        rest = [one for one in self._matching(request) if one.id > request.page_token]
        page = rest[: request.page_size or 1000]
        token = page[-1].id if len(page) < len(rest) else ""
        return pb.ListInstancesResponse(
            instances=page, next_page_token=token, version=self._version
        )

    async def WatchInstances(
        self, request: Any, context: Any
    ) -> AsyncIterator[pb.WatchInstancesResponse]:
        """The snapshot, then the changes that concern this watcher."""
        self._sweep()
        changes: asyncio.Queue[Any] = asyncio.Queue()
        self._watchers.add(changes)
        try:
            snapshot = pb.InstanceSnapshot(instances=self._matching(request))
            yield pb.WatchInstancesResponse(version=self._version, snapshot=snapshot)
            while True:
                try:
                    version, before, after = await asyncio.wait_for(changes.get(), _SWEEP_S)
                except TimeoutError:
                    self._sweep()
                    continue
                if after is not None and _matches(after, request):
                    yield pb.WatchInstancesResponse(version=version, upserted=after)
                elif before is not None and _matches(before, request):
                    yield pb.WatchInstancesResponse(version=version, removed_id=before.id)
        finally:
            self._watchers.discard(changes)

    async def _check(self, instance: pb.Instance, context: Any) -> None:
        if len(instance.meta) > 64 or instance.ByteSize() > _MOST_BYTES:
            code = grpc.StatusCode.INVALID_ARGUMENT
            await fail(context, code, "FIELD_INVALID", "too large", field="instance.meta")

    def _matching(self, request: Any) -> list[pb.Instance]:
        found = [one.instance for one in self._listed.values()]
        return sorted((one for one in found if _matches(one, request)), key=lambda one: one.id)

    def _of_lease(self, lease_id: str) -> _Listed | None:
        return next((one for one in self._listed.values() if one.lease_id == lease_id), None)

    def _sweep(self) -> None:
        now = time.monotonic()
        for listed in [one for one in self._listed.values() if one.ends < now]:
            del self._listed[listed.instance.id]
            self._changed(listed.instance, None)

    def _changed(self, before: pb.Instance | None, after: pb.Instance | None) -> None:
        self._version += 1
        for changes in self._watchers:
            changes.put_nowait((self._version, before, after))


def _place(instance: pb.Instance) -> tuple[str, str, str]:
    return instance.service, instance.name, instance.address


def _matches(instance: pb.Instance, request: Any) -> bool:
    return request.service in ("", instance.service) and request.name in ("", instance.name)
