"""The registry in Consul: leases are its health checks, and watches its blocking queries.

Every process of a mesh may have one of these, over the Consul agent of its machine, and a
discovery service may, too. Leases belong to the process that gave them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from ipaddress import ip_address
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from urllib.parse import quote

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery.backends.consul.entry import (
    EntryError,
    check_id,
    host_and_port,
    lease_mark,
    read_entry,
    read_service_name,
    registration,
    unfit_meta,
)
from gymmesh_discovery.backends.consul.query import BadIndexError, BlockingQuery, read_index
from gymmesh_discovery.backends.consul.view import ConsulView
from gymmesh_discovery.backends.leases import instance_exists
from gymmesh_discovery.backends.watchers import Watcher, Watchers
from gymmesh_discovery.config import ConsulConfig, split_address
from gymmesh_discovery.counted import count_instances
from gymmesh_discovery.view import (
    DEFAULT_LEASE_S,
    LONGEST_LEASE_S,
    SHORTEST_LEASE_S,
    Change,
)
from gymmesh_runtime import metrics
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.extras import Extra

if TYPE_CHECKING:
    from gymmesh_discovery.backends.consul.client import Answer, ConsulClient

_log = logging.getLogger("gymmesh.discovery")
_T = TypeVar("_T")
Instance = discovery_pb2.Instance
_CheckKind = Literal["grpc", "ttl"]

_CALL_S: Final = 4.0
_SWEEP_S: Final = 1.0
_CHANCE: Final = Random()
# Services hear within a second that Consul is back, and register anew where it forgot them.
_GRACE_S: Final = 5.0
_FIRST_VIEW_S: Final = 5.0
# A live service that Consul's check cannot reach so often in a row reports to Consul instead.
_UNREACHED: Final = 3
_MAX_WARNED: Final = 1000


@dataclass(slots=True)
class _Lease:
    instance: Instance
    length_s: int
    expires_at: float
    check: _CheckKind
    unreached: int = 0


class ConsulRegistry:
    """A RegistryBackend over one Consul agent. ``clock`` gives monotonic seconds."""

    #: Whether other processes register in the same place.
    shared: Final = True

    def __init__(self, config: ConsulConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._view = ConsulView(_GRACE_S)
        self._leases: dict[str, _Lease] = {}
        self._watchers = Watchers()
        self._client: ConsulClient | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._waiting: set[str] = set()  # names whose first answer has not come
        self._failing: set[str] = set()  # queries whose last read failed
        self._answered_at = clock()
        self._first_view = asyncio.Event()
        self._warned: set[str] = set()

    async def open(self) -> None:
        """Starts watching, and waits a moment for the first view. Raises ConfigError."""
        self._client = make_client(self._config)
        self._tasks = [
            asyncio.create_task(self._watch_names()),
            asyncio.create_task(self._sweep_forever()),
        ]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_VIEW_S):
                await self._first_view.wait()

    async def close(self) -> None:
        """Stops watching."""
        tasks = [*self._tasks, *self._watches.values()]
        self._tasks, self._watches = [], {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.close()
            self._client = None

    # ---- leases

    async def register(self, instance: Instance, lease_s: int, held_lease: str) -> tuple[str, int]:
        """Registers an instance with the Consul agent. Raises INSTANCE_EXISTS, PEER_UNAVAILABLE."""
        await self._check_free(instance, held_lease)
        lease_id = secrets.token_urlsafe(16)
        length = min(max(lease_s or DEFAULT_LEASE_S, SHORTEST_LEASE_S), LONGEST_LEASE_S)
        listed = Instance()
        listed.CopyFrom(instance)
        held = self._leases.get(held_lease)
        check = held.check if held is not None else self._check_kind(instance)
        lease = _Lease(listed, length, self._clock() + length, check)
        await self._put(lease_id, lease)
        self._leases.pop(held_lease, None)
        self._leases[lease_id] = lease
        left_out = unfit_meta(instance.meta)
        if left_out:
            self._warn_once(
                f"Consul takes no meta such as {', '.join(left_out)[:200]} of {instance.id}"
            )
        return lease_id, length

    async def renew(self, lease_id: str, health: discovery_pb2.Health.ValueType) -> int:
        """Looks whether Consul still knows the instance, and reports. Raises LEASE_NOT_FOUND."""
        lease = self._leases.get(lease_id)
        if lease is None:
            raise _lease_not_found()
        known = await self._known(lease.instance.id)
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
        """Gives a lease back; one that another process took over is left alone."""
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return
        known = await self._known(lease.instance.id)
        if known is not None and _mark_of(known) == lease_mark(lease_id):
            await self._write(f"/v1/agent/service/deregister/{_quoted(lease.instance.id)}")

    # ---- what watchers see

    def snapshot(self, service: str, name: str) -> tuple[int, list[Instance]]:
        """The version and the matching instances."""
        self._publish(self._view.expire(self._clock()))
        return self._view.version, self._view.instances(service, name)

    def subscribe(self) -> Watcher:
        """Every change from this call on."""
        return self._watchers.subscribe()

    def age_s(self) -> float:
        """For how long a part of the view has not been confirmed, in seconds; 0 when it is."""
        return self._clock() - self._answered_at if self._failing else 0.0

    # ---- registering

    async def _check_free(self, instance: Instance, held_lease: str) -> None:
        """Raises INSTANCE_EXISTS where a live instance elsewhere has the id."""
        known = await self._known(instance.id)
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

    async def _put(self, lease_id: str, lease: _Lease) -> None:
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

    def _check_kind(self, instance: Instance) -> _CheckKind:
        if self._config.check != "auto":
            return self._config.check
        place = host_and_port(instance.address)
        if place is None:
            return "ttl"
        # What listens on this machine's loopback is out of reach for an agent elsewhere.
        here = _is_loopback(split_address(self._config.address)[1])
        return "grpc" if here or not _is_loopback(place[0]) else "ttl"

    async def _report(self, lease_id: str, lease: _Lease) -> None:
        serving = lease.instance.health != discovery_pb2.HEALTH_NOT_SERVING
        verb = "pass" if serving else "fail"
        check = check_id(lease.instance.id, lease_id)
        await self._write(f"/v1/agent/check/{verb}/{_quoted(check)}")

    async def _see_reached(self, lease_id: str, lease: _Lease, known: dict[str, Any]) -> None:
        """Falls back to reports where Consul's own check cannot reach a live service."""
        ours = [
            one
            for one in known.get("Checks") or []
            if isinstance(one, dict) and one.get("CheckID") == check_id(lease.instance.id, lease_id)
        ]
        if not ours or ours[0].get("Status") != "critical":
            lease.unreached = 0
            return
        lease.unreached += 1
        if lease.unreached < _UNREACHED or self._config.check == "grpc":
            return
        _log.warning(
            "Consul's health check does not reach %s at %s (%s); it reports to Consul from now on",
            lease.instance.id,
            lease.instance.address,
            str(ours[0].get("Output"))[:200],
        )
        lease.check, lease.unreached = "ttl", 0
        await self._put(lease_id, lease)

    async def _maintain(self, instance: Instance) -> None:
        on = instance.health == discovery_pb2.HEALTH_DRAINING
        params = [("enable", "true"), ("reason", "draining")] if on else [("enable", "false")]
        await self._write(f"/v1/agent/service/maintenance/{_quoted(instance.id)}", params)

    async def _known(self, instance_id: str) -> dict[str, Any] | None:
        """What the Consul agent says of a service of its own; None when it knows none."""
        path = f"/v1/agent/health/service/id/{_quoted(instance_id)}"
        answer = await self._open_client().read(path, timeout=_CALL_S)
        if answer.status == 404:
            return None
        known = self._readable(answer)
        if not isinstance(known, dict) or not isinstance(known.get("Service"), dict):
            raise self._open_client().strange("it describes no service")
        return known

    async def _write(
        self, path: str, params: Collection[tuple[str, str]] = (), body: Any = None
    ) -> None:
        answer = await self._open_client().write(path, list(params), body, timeout=_CALL_S)
        if answer.status == 404 and "/deregister/" not in path:
            raise _lease_not_found()  # forgotten since we looked

    def _open_client(self) -> ConsulClient:
        if self._client is None:
            raise MeshError(errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, "the registry is not open")
        return self._client

    # ---- watching

    async def _watch_names(self) -> None:
        """Follows the list of names, with a watch for each of the mesh's."""
        await self._follow("", "/v1/catalog/services", self._read_names, self._take_names)

    async def _watch_name(self, name: str) -> None:
        def take(instances: list[Instance]) -> None:
            self._publish(self._view.take(name, instances, self._clock()))
            self._waiting.discard(name)
            if not self._waiting:
                self._first_view.set()

        path = f"/v1/health/service/{_quoted(name)}"
        await self._follow(name, path, self._read_instances, take)

    async def _follow(
        self,
        key: str,
        path: str,
        read: Callable[[Answer], _T],
        take: Callable[[_T], None],
    ) -> None:
        """Asks a blocking query for ever, and takes each answer that is to be taken."""
        query = BlockingQuery(self._config.wait_s)
        consistency = self._config.consistency
        mode = [] if consistency == "default" else [(consistency, "")]
        while True:
            began = self._clock()
            try:
                answer = await self._open_client().read(
                    path, [*query.params(), *mode], timeout=query.timeout_s()
                )
                index, content = self._index(answer), read(answer)
            except MeshError as error:
                query.failed()
                self._fails(key, error)
            else:
                self._answers(key)
                if query.answered(index):
                    take(content)
                else:
                    self._interrupted()
            await asyncio.sleep(query.pause_s(self._clock() - began, _CHANCE.random()))

    def _take_names(self, names: set[str]) -> None:
        for name in self._watches.keys() - names:
            self._watches.pop(name).cancel()
            self._failing.discard(name)
            self._waiting.discard(name)
        self._publish(self._view.names(names, self._clock()))
        for name in sorted(names - self._watches.keys()):
            self._waiting.add(name)
            self._watches[name] = asyncio.create_task(self._watch_name(name))
        if not self._waiting:
            self._first_view.set()

    def _fails(self, key: str, error: MeshError) -> None:
        if not self._failing:
            count = len(self._view.instances())
            _log.warning("%s; the last view of %d instances stays in use", error.message, count)
        self._failing.add(key)

    def _answers(self, key: str) -> None:
        now = self._clock()
        if key in self._failing:
            away = self.age_s()
            self._failing.discard(key)
            self._interrupted()
            if not self._failing:
                _log.warning("Consul at %s is back after %.1f s", self._open_client().address, away)
        if not self._failing:
            self._answered_at = now

    def _interrupted(self) -> None:
        """Consul may have forgotten whom it knew: watchers look again, and so register anew."""
        self._view.interrupted(self._clock())
        self._watchers.missed()

    def _index(self, answer: Answer) -> int:
        if answer.status != 200:
            raise self._open_client().strange(f"it answers a watch with status {answer.status}")
        try:
            return read_index(answer.index_header)
        except BadIndexError as error:
            raise self._open_client().strange(str(error)) from None

    def _read_names(self, answer: Answer) -> set[str]:
        names = self._readable(answer)
        if not isinstance(names, dict):
            raise self._open_client().strange("its list of services is no map")
        prefix = self._config.prefix
        return {name for name in names if read_service_name(prefix, name) is not None}

    def _read_instances(self, answer: Answer) -> list[Instance]:
        entries = self._readable(answer)
        if not isinstance(entries, list):
            raise self._open_client().strange("its list of instances is no list")
        instances = []
        for entry in entries:
            try:
                instances.append(read_entry(entry, self._config.prefix))
            except EntryError as error:
                service = entry.get("Service") if isinstance(entry, dict) else None
                name = service.get("ID") if isinstance(service, dict) else None
                self._warn_once(f"the instance {name!r} in Consul is left out: {error}")
        ids = Counter(one.id for one in instances)
        for one in [name for name, count in ids.items() if count > 1]:
            self._warn_once(f"two nodes in Consul list an instance '{one}'; one of them is used")
        return instances

    def _readable(self, answer: Answer) -> Any:
        try:
            return answer.json()
        except (ValueError, RecursionError):
            raise self._open_client().strange("its answer is no JSON") from None

    def _publish(self, changes: Collection[Change]) -> None:
        if changes:
            self._watchers.publish(changes)
            count_instances(self._view.instances())

    def _warn_once(self, line: str) -> None:
        if line not in self._warned and len(self._warned) < _MAX_WARNED:
            self._warned.add(line)
            _log.warning("%s", "".join(one if one.isprintable() else " " for one in line)[:1000])

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            metrics.REGISTRY_VIEW_AGE.set(self.age_s())
            self._publish(self._view.expire(self._clock()))
            now = self._clock()
            for lease_id in [key for key, one in self._leases.items() if one.expires_at <= now]:
                metrics.REGISTRY_EXPIRED.inc()
                _log.warning("the lease of %s ran out", self._leases[lease_id].instance.id)
                with contextlib.suppress(MeshError):
                    await self.deregister(lease_id)


def make_client(config: ConsulConfig) -> ConsulClient:
    """A client of the agent. Raises ConfigError."""
    Extra("consul", ("consul",)).require("discovery by Consul")
    from gymmesh_discovery.backends.consul.client import ConsulClient

    return ConsulClient(config)


def _quoted(part: str) -> str:
    """One part of a path."""
    return quote(part, safe="")


def _mark_of(known: dict[str, Any]) -> str:
    meta = known["Service"].get("Meta")
    mark = meta.get("gymmesh-lease", "") if isinstance(meta, dict) else ""
    return str(mark)


def _place_of(known: dict[str, Any]) -> tuple[str, int] | None:
    host, port = known["Service"].get("Address"), known["Service"].get("Port")
    return (host, port) if isinstance(host, str) and isinstance(port, int) else None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _lease_not_found() -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_LEASE_NOT_FOUND,
        "Consul does not know the instance under this lease; register again",
    )
