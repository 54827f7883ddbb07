"""The registry in Consul. Leases are Consul's health checks, and watches are blocking queries.

Every process of a mesh, also a discovery service, may have a ConsulRegistry over the Consul agent
of its machine. A lease belongs to the process that granted it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery import metrics
from gymmesh_discovery.backends.base import RegistryBackend, instance_exists
from gymmesh_discovery.backends.consul.entry import (
    check_id,
    host_and_port,
    lease_mark,
    registration,
    unfit_meta,
)
from gymmesh_discovery.backends.consul.registry_view import ConsulView
from gymmesh_discovery.backends.consul.watch import ConsulWatch
from gymmesh_discovery.backends.entry import Warnings, printable
from gymmesh_discovery.config import ConsulConfig, split_address
from gymmesh_discovery.registry_view import lease_length
from gymmesh_runtime.addresses import is_local
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.extras import Extra

if TYPE_CHECKING:
    from gymmesh_discovery.backends.consul.client import ConsulClient

_log = logging.getLogger("gymmesh.discovery")
Instance = discovery_pb2.Instance
_CheckKind = Literal["grpc", "ttl"]

_SWEEP_S: Final = 1.0
# Services learn within a second that Consul is back, and register anew if it forgot them.
_GRACE_S: Final = 5.0
# A live service that Consul's check cannot reach so often in a row reports to Consul instead.
_UNREACHED: Final = 3


@dataclass(slots=True)
class _ConsulLease:
    instance: Instance
    length_s: int
    expires_at: float
    check: _CheckKind
    unreached: int = 0


class ConsulRegistry(RegistryBackend):
    """The registry of one Consul agent. ``clock`` gives monotonic seconds."""

    shared = True

    def __init__(self, config: ConsulConfig, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._config = config
        self._clock = clock
        self._view: ConsulView = ConsulView(grace_s=_GRACE_S)
        self._warnings = Warnings()
        self._watch = ConsulWatch(config, self._view, self._watchers, self._warnings, clock)
        self._client: ConsulClient | None = None
        self._leases: dict[str, _ConsulLease] = {}

    async def open(self) -> None:
        """Starts watching, and waits a few seconds for the first list. Raises ConfigError."""
        self._client = make_client(self._config)
        await super().open()
        await self._watch.open(self._client)

    async def close(self) -> None:
        await super().close()
        await self._watch.close()
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def register(self, instance: Instance, lease_s: int, held_lease: str) -> tuple[str, int]:
        await self._check_free(instance, held_lease)
        lease_id = secrets.token_urlsafe(16)
        length = lease_length(lease_s)
        listed = Instance()
        listed.CopyFrom(instance)
        held = self._leases.get(held_lease)
        check = held.check if held is not None else check_kind(self._config, instance)
        lease = _ConsulLease(listed, length, self._clock() + length, check)
        await self._put(lease_id, lease)
        self._leases.pop(held_lease, None)
        self._leases[lease_id] = lease
        left_out = unfit_meta(instance.meta)
        if left_out:
            self._warnings.once(
                f"Consul can't store the meta keys {', '.join(left_out)[:200]} of {instance.id}, "
                "so the registration omits these keys"
            )
        return lease_id, length

    async def renew(self, lease_id: str, health: discovery_pb2.Health.ValueType) -> int:
        """Checks whether Consul still lists the instance, and reports the instance's health."""
        lease = self._leases.get(lease_id)
        if lease is None:
            raise _lease_not_found()
        known = await self._consul.known(lease.instance.id)
        if known is None or _mark_of(known) != lease_mark(lease_id):
            self._leases.pop(lease_id, None)
            raise _lease_not_found()
        before = lease.instance.health
        lease.instance.health = health or before
        if lease.check == "ttl":
            await self._report(lease_id, lease)
        elif lease.instance.health == discovery_pb2.HEALTH_SERVING:
            await self._see_reached(lease_id, lease, known)
        draining = discovery_pb2.HEALTH_DRAINING
        if (before == draining) != (lease.instance.health == draining):
            await self._maintain(lease.instance)
        lease.expires_at = self._clock() + lease.length_s
        return lease.length_s

    async def deregister(self, lease_id: str) -> None:
        """Ends a lease. A lease that another process took over is left unchanged."""
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return
        known = await self._consul.known(lease.instance.id)
        if known is not None and _mark_of(known) == lease_mark(lease_id):
            await self._write(f"/v1/agent/service/deregister/{quote(lease.instance.id, safe='')}")

    def sweep(self) -> None:
        self._watch.expire()

    def age_s(self) -> float:
        """Seconds since Consul last confirmed the whole list of instances; 0 while it is
        confirmed.
        """
        return self._watch.age_s()

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            metrics.REGISTRY_VIEW_AGE.set(self.age_s())
            self._watch.expire()
            now = self._clock()
            for lease_id, lease in list(self._leases.items()):
                # Leases may be given back, or renewed, while another is ended.
                if lease_id in self._leases and lease.expires_at <= now:
                    metrics.REGISTRY_EXPIRED.inc()
                    _log.warning(
                        "the lease of %s in Consul expired; the registry removes this instance "
                        "from Consul",
                        lease.instance.id,
                    )
                    with contextlib.suppress(MeshError):
                        await self.deregister(lease_id)

    @property
    def _consul(self) -> ConsulClient:
        if self._client is None:
            raise MeshError(errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, "the registry is not open")
        return self._client

    async def _write(
        self, path: str, params: Sequence[tuple[str, str]] = (), body: Any = None
    ) -> None:
        """Changes something at the agent. Raises LEASE_NOT_FOUND for an instance it forgot."""
        answer = await self._consul.write(path, params, body)
        if answer.status == 404 and "/deregister/" not in path:
            raise _lease_not_found()  # forgotten since the last look

    async def _check_free(self, instance: Instance, held_lease: str) -> None:
        """Raises INSTANCE_EXISTS where a live instance elsewhere has the id."""
        known = await self._consul.known(instance.id)
        mine = known is not None and held_lease and _mark_of(known) == lease_mark(held_lease)
        taken = False
        if known is not None and not mine:
            live = known.get("AggregatedStatus") in ("passing", "warning")
            taken = live and _place_of(known) != host_and_port(instance.address)
        # A Consul agent knows its own services alone; the view has those of other machines.
        other = self._view.get(instance.id)
        if known is None and other is not None and other.address != instance.address:
            serves = other.health == discovery_pb2.HEALTH_SERVING
            taken = serves and held_lease not in self._leases
        if taken:
            raise instance_exists(instance.id)

    async def _put(self, lease_id: str, lease: _ConsulLease) -> None:
        config = self._config
        check: dict[str, Any] = {
            "Name": "gymmesh",
            "DeregisterCriticalServiceAfter": f"{config.deregister_after_s:g}s",
        }
        if lease.check == "grpc":
            check |= {
                "GRPC": lease.instance.address,
                "Interval": f"{config.check_interval_s:g}s",
                "Timeout": "5s",
            }
        else:
            check |= {"TTL": f"{lease.length_s}s"}
        body = registration(lease.instance, config.prefix, lease_id, check)
        await self._write("/v1/agent/service/register", [("replace-existing-checks", "true")], body)
        if lease.instance.health == discovery_pb2.HEALTH_DRAINING:
            await self._maintain(lease.instance)
        if lease.check == "ttl":
            await self._report(lease_id, lease)  # a check that was there before kept its status

    async def _report(self, lease_id: str, lease: _ConsulLease) -> None:
        serving = lease.instance.health != discovery_pb2.HEALTH_NOT_SERVING
        verb = "pass" if serving else "fail"
        check = check_id(lease.instance.id, lease_id)
        await self._write(f"/v1/agent/check/{verb}/{quote(check, safe='')}")

    async def _see_reached(self, lease_id: str, lease: _ConsulLease, known: dict[str, Any]) -> None:
        """Falls back to reports where Consul's own check cannot reach a live service."""
        checks = known.get("Checks")
        ours = [
            one
            for one in (checks if isinstance(checks, list) else [])
            if isinstance(one, dict) and one.get("CheckID") == check_id(lease.instance.id, lease_id)
        ]
        if not ours or ours[0].get("Status") != "critical":
            lease.unreached = 0
            return
        lease.unreached += 1
        if lease.unreached < _UNREACHED or self._config.check == "grpc":
            return
        _log.warning(
            "Consul's health check can't reach %s at %s (%s); the instance now reports its health "
            "to Consul",
            lease.instance.id,
            lease.instance.address,
            _shown_output(ours[0].get("Output")),
        )
        lease.check, lease.unreached = "ttl", 0
        await self._put(lease_id, lease)

    async def _maintain(self, instance: Instance) -> None:
        on = instance.health == discovery_pb2.HEALTH_DRAINING
        params = [("enable", "true"), ("reason", "draining")] if on else [("enable", "false")]
        await self._write(f"/v1/agent/service/maintenance/{quote(instance.id, safe='')}", params)


def make_client(config: ConsulConfig) -> ConsulClient:
    """A client of the agent. Raises ConfigError."""
    Extra("consul", ("consul",)).require("discovery by Consul")
    from gymmesh_discovery.backends.consul.client import ConsulClient

    return ConsulClient(config)


def check_kind(config: ConsulConfig, instance: Instance) -> _CheckKind:
    """How Consul learns whether an instance serves: Consul calls it, or the instance reports."""
    if config.check != "auto":
        return config.check
    place = host_and_port(instance.address)
    if place is None:
        return "ttl"
    # What listens on this machine's loopback is out of reach for an agent elsewhere.
    here = is_local(split_address(config.address)[1])
    return "grpc" if here or not is_local(place[0]) else "ttl"


def _lease_not_found() -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_LEASE_NOT_FOUND,
        "Consul does not know the instance under this lease; register again",
    )


def _shown_output(output: object) -> str:
    return printable(output[:200]) if isinstance(output, str) else "no reason given"


def _mark_of(known: dict[str, Any]) -> str:
    meta = known["Service"].get("Meta")
    mark = meta.get("gymmesh-lease", "") if isinstance(meta, dict) else ""
    return str(mark)


def _place_of(known: dict[str, Any]) -> tuple[str, int] | None:
    host, port = known["Service"].get("Address"), known["Service"].get("Port")
    return (host, port) if isinstance(host, str) and isinstance(port, int) else None
