"""Follows the instances in Consul by blocking queries: one query for the service names, and one
query for each name of the mesh.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Collection
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery.backends.base import count_instances
from gymmesh_discovery.backends.consul.entry import read_entry, read_service_name
from gymmesh_discovery.backends.consul.query import BadIndexError, BlockingQuery, read_index
from gymmesh_discovery.backends.consul.registry_view import ConsulView
from gymmesh_discovery.backends.entry import EntryError, Warnings
from gymmesh_discovery.backends.watchers import Watchers
from gymmesh_discovery.config import ConsulConfig
from gymmesh_discovery.registry_view import Change
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.timers import cancel_and_wait

if TYPE_CHECKING:
    from gymmesh_discovery.backends.consul.client import ConsulAnswer, ConsulClient

_log = logging.getLogger("gymmesh.discovery")
_T = TypeVar("_T")
Instance = discovery_pb2.Instance

_CHANCE: Final = Random()
_FIRST_VIEW_S: Final = 5.0
_MOST_NAMES: Final = 4096  # each is a query that waits, and so a connection
_MOST_SHOWN: Final = 100


class ConsulWatch:
    """Keeps `view` equal to Consul's list, and publishes the changes to `watchers`.

    `clock`: monotonic seconds.
    """

    _client: ConsulClient

    def __init__(
        self,
        config: ConsulConfig,
        view: ConsulView,
        watchers: Watchers,
        warnings: Warnings,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._view = view
        self._watchers = watchers
        self._warnings = warnings
        self._clock = clock
        self._names: asyncio.Task[None] | None = None
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._waiting: set[str] = set()  # names whose first answer has not come
        self._failing: set[str] = set()  # queries whose last read failed
        self._answered_at = clock()
        self._first_view = asyncio.Event()

    async def open(self, client: ConsulClient) -> None:
        """Start, and wait a few seconds for the first list."""
        self._client = client
        self._names = asyncio.create_task(
            self._follow("", "/v1/catalog/services", self._read_names, self._take_names)
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_VIEW_S):
                await self._first_view.wait()

    async def close(self) -> None:
        tasks = (self._names, *self._watches.values())
        self._names, self._watches = None, {}
        await cancel_and_wait(*tasks)

    def age_s(self) -> float:
        """Seconds since Consul last confirmed the whole list of instances; 0 while it is
        confirmed.
        """
        return self._clock() - self._answered_at if self._failing else 0.0

    def expire(self) -> None:
        """Remove instances that Consul does not list and whose grace period is over."""
        self._publish(self._view.expire(self._clock()))

    async def _watch_name(self, name: str) -> None:
        def take(instances: list[Instance]) -> None:
            self._publish(self._view.take(name, instances, self._clock()))
            self._waiting.discard(name)
            if not self._waiting:
                self._first_view.set()

        path = f"/v1/health/service/{quote(name, safe='')}"
        await self._follow(name, path, self._read_instances, take)

    async def _follow(
        self, key: str, path: str, read: Callable[[ConsulAnswer], _T], take: Callable[[_T], None]
    ) -> None:
        """Repeat a blocking query for ever, and take each answer that is a new one."""
        query = BlockingQuery(self._config.wait_s)
        consistency = self._config.consistency
        mode = [] if consistency == "default" else [(consistency, "")]
        while True:
            began = self._clock()
            try:
                answer = await self._client.read(
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
            _log.warning(
                "%s; this process still uses the last list (instances: %d)", error.message, count
            )
        self._failing.add(key)

    def _answers(self, key: str) -> None:
        now = self._clock()
        if key in self._failing:
            away = self.age_s()
            self._failing.discard(key)
            self._interrupted()
            if not self._failing:
                _log.warning(
                    "Consul at %s is reachable again after %.1f s", self._client.address, away
                )
        if not self._failing:
            self._answered_at = now

    def _interrupted(self) -> None:
        """Consul may have forgotten instances: watchers look again, and so register anew."""
        self._view.interrupted(self._clock())
        self._watchers.missed()

    def _index(self, answer: ConsulAnswer) -> int:
        if answer.status != 200:
            raise self._client.strange(f"the answer to a watch has status {answer.status}")
        try:
            return read_index(answer.index_header)
        except BadIndexError as error:
            raise self._client.strange(str(error)) from None

    def _read_names(self, answer: ConsulAnswer) -> set[str]:
        names = self._client.json_of(answer)
        if not isinstance(names, dict):
            raise self._client.strange("the list of services is not a map")
        prefix = self._config.prefix
        ours = {name for name in names if read_service_name(prefix, name) is not None}
        if len(ours) > _MOST_NAMES:
            raise self._client.strange(
                f"the server lists {len(ours)} names of mesh services; the limit is {_MOST_NAMES}"
            )
        return ours

    def _read_instances(self, answer: ConsulAnswer) -> list[Instance]:
        entries = self._client.json_of(answer)
        if not isinstance(entries, list):
            raise self._client.strange("the answer with the instances is not a list")
        instances = []
        for entry in entries:
            try:
                instances.append(read_entry(entry, self._config.prefix))
            except EntryError as error:
                shown = _shown_id(entry)
                self._warnings.once(f"skipped the instance {shown} in Consul: {error}")
        ids = Counter(one.id for one in instances)
        for one in [name for name, count in ids.items() if count > 1]:
            self._warnings.once(
                f"several nodes in Consul list the instance '{one}', so this process uses only one "
                "of these entries. Give each instance its own id"
            )
        return instances

    def _publish(self, changes: Collection[Change]) -> None:
        if changes:
            self._watchers.publish(changes)
            count_instances(self._view.instances())


def _shown_id(entry: object) -> str:
    """The id of an entry that may hold anything, fit to be printed."""
    service = entry.get("Service") if isinstance(entry, dict) else None
    name = service.get("ID") if isinstance(service, dict) else None
    return ascii(name[:_MOST_SHOWN]) if isinstance(name, str) else "without an id"
