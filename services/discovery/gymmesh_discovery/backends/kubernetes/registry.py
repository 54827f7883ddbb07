"""The registry that Kubernetes keeps. Labelled EndpointSlices describe the services. They are
listed once and then watched. gymmesh writes nothing to Kubernetes.

Services outside Kubernetes register with a discovery service that uses this registry. Their leases
stay in the discovery service's memory and are listed beside the pods.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from random import Random
from typing import Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery import metrics
from gymmesh_discovery.backends.base import instance_exists
from gymmesh_discovery.backends.entry import Warnings
from gymmesh_discovery.backends.kubernetes.access import find_access
from gymmesh_discovery.backends.kubernetes.client import GoneError, KubernetesClient, refusal
from gymmesh_discovery.backends.kubernetes.entry import read_slice
from gymmesh_discovery.backends.kubernetes.objects import EndpointSlice
from gymmesh_discovery.backends.kubernetes.registry_view import KubernetesView
from gymmesh_discovery.backends.memory import MemoryRegistry
from gymmesh_discovery.config import KubernetesConfig
from gymmesh_discovery.registry_view import Change
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.timers import cancel_and_wait, doubled_s

_log = logging.getLogger("gymmesh.discovery")
Instance = discovery_pb2.Instance

_FIRST_VIEW_S: Final = 5.0
_SHORTEST_S: Final = 1.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_CHANCE: Final = Random()


class KubernetesRegistry(MemoryRegistry):
    """A RegistryBackend over one namespace. ``clock`` gives monotonic seconds."""

    #: Whether this process must watch its own registry: other processes' services are in it.
    shared = True

    def __init__(
        self, config: KubernetesConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(clock)
        self._config = config
        self._view: KubernetesView = KubernetesView()
        self._client: KubernetesClient | None = None
        self._follower: asyncio.Task[None] | None = None
        self._version = ""  # to watch from; empty: all is to be listed first
        self._problem: MeshError | None = None  # of the newest request
        self._answered_at = clock()
        self._first_view = asyncio.Event()
        self._warnings = Warnings()

    async def open(self) -> None:
        """Starts watching, and waits a few seconds for the first list. Raises ConfigError."""
        self._client = KubernetesClient(self._config, find_access(self._config))
        await super().open()
        self._follower = asyncio.create_task(self._follow())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_VIEW_S):
                await self._first_view.wait()

    async def close(self) -> None:
        await cancel_and_wait(self._follower)
        await super().close()
        await self._drop_client()

    # ---- leases

    async def register(self, instance: Instance, lease_s: int, held_lease: str) -> tuple[str, int]:
        """Grants a lease in this process's memory."""
        listed = self._view.endpoint(instance.id)
        if listed is not None and listed.address != instance.address:
            raise instance_exists(instance.id)
        return await super().register(instance, lease_s, held_lease)

    def _leased(self, change: Change) -> None:
        self._watchers.publish(self._view.lease(change))

    # ---- what watchers see

    def sweep(self) -> None:
        """Removes instances whose lease expired, and reports the age of the list."""
        metrics.REGISTRY_VIEW_AGE.set(self.age_s())
        super().sweep()

    def age_s(self) -> float:
        """Seconds since Kubernetes last confirmed the list of instances; 0 while it is
        confirmed.
        """
        return self._clock() - self._answered_at if self._problem is not None else 0.0

    # ---- watching

    async def _follow(self) -> None:
        """Lists, then watches, for ever; what fails is tried again after a growing pause."""
        failures = 0
        while True:
            began = self._clock()
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except GoneError:
                _log.info(
                    "%s no longer has the changes since the last list of instances; this process "
                    "lists all instances again",
                    self._name(),
                )
                self._version = ""
            except MeshError as error:
                self._fails(error)
                # What was away may be back from a backup, and behind: a version that it has not
                # reached yet it takes without a word, and keeps to itself what happens until then.
                self._version = ""
                await self._drop_client()  # the next one reads certificates and kubeconfig anew
            # A watch lasts: one that is over at once is no success, whatever ended it.
            failures = failures + 1 if self._clock() - began < _SHORTEST_S else 0
            await asyncio.sleep(_pause_s(failures, _CHANCE.random()))

    async def _list(self) -> None:
        version, found = await self._open_client().slices()
        self._answers()
        slices = {one.metadata.name: self._instances(one) for one in found}
        self._watchers.publish(self._view.replace(slices))
        self._version = version
        self._first_view.set()

    async def _watch(self) -> None:
        async with self._open_client().watch(self._version) as events:
            self._answers()
            async for event in events:
                self._answers()
                if event.type != "BOOKMARK":
                    left = [] if event.type == "DELETED" else self._instances(event.slice)
                    self._watchers.publish(self._view.put(event.slice.metadata.name, left))
                self._version = event.slice.metadata.resource_version
        self._answers()

    def _instances(self, found: EndpointSlice) -> list[Instance]:
        instances, left_out = read_slice(found, self._config.port, self._config.metrics_port)
        for line in left_out:
            self._warnings.once(line)
        return instances

    def _fails(self, error: MeshError) -> None:
        if self._problem is None or self._problem.reason != error.reason:
            count = len(self._view.instances())
            _log.warning(
                "%s; this process still uses the last list (instances: %d)", error.message, count
            )
        self._problem = error

    def _answers(self) -> None:
        if self._problem is not None:
            _log.warning("%s is reachable again after %.1f s", self._name(), self.age_s())
        self._problem = None
        self._answered_at = self._clock()

    def _name(self) -> str:
        return f"Kubernetes at {self._client.address}" if self._client is not None else "Kubernetes"

    def _open_client(self) -> KubernetesClient:
        if self._client is None:
            try:
                self._client = KubernetesClient(self._config, find_access(self._config))
            except ConfigError as error:  # what was there at the start is not any more
                raise refusal(str(error)) from None
        return self._client

    async def _drop_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def _pause_s(failures: int, draw: float) -> float:
    """How long to wait before the next request; ``draw`` is a random number in [0, 1)."""
    if not failures:
        return 0.0
    return doubled_s(_FIRST_PAUSE_S, failures, _LONGEST_PAUSE_S) * (0.5 + draw / 2)
