"""Updates a directory from a registry, over a DiscoveryService.

A background task with bounded waits. It retries an unreachable registry with a growing pause.
Meanwhile the last known instances stay in use, marked as outdated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serving.registration import LEASE_S, DiscoveryPeer
from gymmesh_runtime.timers import cancel_and_wait

_log = logging.getLogger("gymmesh.discovery")

_WATCH_S: Final = 3600.0
_FIRST_PAUSE_S: Final = 0.05
# Added to gRPC's own pause between two attempts to connect, at most 2 s. Until the watch is
# back, nobody here learns of the instance that took another one's place.
_LONGEST_PAUSE_S: Final = 0.5


class DirectoryWatch:
    """Updates a directory from a registry.

    ``on_snapshot`` is called when the registry sends a snapshot: at first, after each broken
    connection, and when another registry answers.

    A registry in memory that restarted knows no instances at first. So if the first snapshot of a
    new connection lacks instances that accepted calls, these stay known for the length of a lease.
    In this time live instances register again.
    """

    on_snapshot: Callable[[], None] | None = None

    def __init__(self, discovery: DiscoveryPeer, directory: PeerDirectory) -> None:
        self._discovery = discovery
        self._directory = directory
        self._pause = _FIRST_PAUSE_S
        self._task: asyncio.Task[None] | None = None
        self._listed: dict[str, discovery_pb2.Instance] = {}  # by id
        # Of these, what an earlier connection said alone, until the timer has it forgotten.
        self._unconfirmed: dict[str, asyncio.TimerHandle] = {}
        self._is_new = False  # the connection: no snapshot has come yet

    def start(self) -> None:
        self._task = asyncio.create_task(self._watch_forever())

    async def stop(self) -> None:
        """Stops watching. The directory keeps its instances."""
        await cancel_and_wait(self._task)
        self._task = None
        for instance_id in list(self._unconfirmed):
            self._confirm(instance_id)

    async def _watch_forever(self) -> None:
        self._pause = _FIRST_PAUSE_S
        request = discovery_pb2.WatchInstancesRequest()
        while True:
            self._is_new = self._directory.outdated = True
            try:
                stream: Any = self._discovery.WatchInstances(request, timeout=_WATCH_S)
                async with aclosing(stream) as changes:
                    async for response in changes:
                        self._pause = _FIRST_PAUSE_S
                        self._apply(response)
            except MeshError as error:
                _log.info(
                    "the stream of changes from the registry broke; this process opens a new "
                    "stream: %s",
                    error,
                )
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)

    def _apply(self, response: discovery_pb2.WatchInstancesResponse) -> None:
        change = response.WhichOneof("change")
        if change == "snapshot":
            self._replace({one.id: one for one in response.snapshot.instances})
            if self.on_snapshot is not None:
                self.on_snapshot()
        elif change == "upserted":
            upserted = response.upserted
            self._listed[upserted.id] = upserted
            self._confirm(upserted.id)
            self._directory.upsert(upserted)
        elif change == "removed_id":
            self._forget(response.removed_id)

    def _replace(self, snapshot: dict[str, discovery_pb2.Instance]) -> None:
        """Takes a snapshot, and beside it what is not confirmed but may still be there."""
        for key in self._unconfirmed.keys() & snapshot.keys():
            self._confirm(key)
        before, self._listed = self._listed, snapshot
        loop = asyncio.get_running_loop()
        for key in before.keys() - snapshot.keys() - self._unconfirmed.keys():
            if self._is_new and before[key].health == discovery_pb2.HEALTH_SERVING:
                self._unconfirmed[key] = loop.call_later(LEASE_S, self._forget, key)
        self._is_new = False
        self._listed |= {key: before[key] for key in self._unconfirmed}
        self._directory.replace(self._listed.values())

    def _confirm(self, instance_id: str) -> None:
        timer = self._unconfirmed.pop(instance_id, None)
        if timer is not None:
            timer.cancel()

    def _forget(self, instance_id: str) -> None:
        self._confirm(instance_id)
        self._listed.pop(instance_id, None)
        self._directory.remove(instance_id)
