"""The aggregated discovery service: a thin adapter from gRPC streams to ``ClientStream``."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final

from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

from gymmesh.discovery.v1 import discovery_pb2 as registry_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery import metrics
from gymmesh_discovery.backends.base import RegistryBackend
from gymmesh_discovery.xds.feed import RegistryFeed
from gymmesh_discovery.xds.names import TYPES
from gymmesh_discovery.xds.stream import ClientStream, Push, TooManyNamesError
from gymmesh_runtime.errors import MeshError, field_invalid
from gymmesh_runtime.security import Credentials
from gymmesh_runtime.text import one_line
from gymmesh_runtime.timers import cancel_and_wait

IS_FACE = True  # see tools/import_faces.py

_log = logging.getLogger("gymmesh.xds")

# Longer than services take to be back in a registry that lost its memory (a third of a lease, 5 s,
# and the pause before the next try), and less than the 15 s that clients wait for a resource.
_SETTLE_S: Final = 10.0
_MOST_STREAMS: Final = 10_000
_MOST_WORDS: Final = 500  # characters of a client that are logged
_MOST_LOGGED: Final = 1000
_Receive = Callable[[ClientStream, Any], None]


class XdsEdge:
    """The control plane: the registry over the xDS protocol."""

    def __init__(self, *, settle_s: float = _SETTLE_S, most_streams: int = _MOST_STREAMS) -> None:
        self._settle_s = settle_s
        self._most_streams = most_streams
        self._feed: RegistryFeed | None = None
        self._streams = 0
        self._draining = False
        self._logged: set[tuple[str, str]] = set()

    async def open(self, backend: RegistryBackend, credentials: Credentials) -> None:
        """Starts to follow the registry. The process's gRPC server serves the edge, with its own
        security.
        """
        self._feed = RegistryFeed(backend, settle_s=self._settle_s)
        await self._feed.open()
        metrics.XDS_STREAMS.set(self._streams)
        for type_url in TYPES:  # shown as 0, or a rate would not see the first push
            metrics.XDS_PUSH_SECONDS.labels(_short(type_url))

    def served_as(self, instance: registry_pb2.Instance) -> None:
        """Does nothing: the control plane is not offered to its clients."""

    async def close(self) -> None:
        self.drain()
        if self._feed is not None:
            await self._feed.close()

    def drain(self) -> None:
        """Ends all streams. Clients keep their resources, and connect again."""
        self._draining = True
        if self._feed is not None:
            for stream in self._feed.streams:
                stream.set()

    def extras(self) -> list[Callable[[Any], None]]:
        """The function that adds the service to a gRPC server."""
        return [partial(ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server, self)]

    async def StreamAggregatedResources(self, requests: AsyncIterator[Any], rpc: Any) -> None:
        """The state-of-the-world protocol."""
        await self._serve(ClientStream(delta=False), requests, rpc, _receive_whole, _whole)

    async def DeltaAggregatedResources(self, requests: AsyncIterator[Any], rpc: Any) -> None:
        """The delta protocol."""
        await self._serve(ClientStream(delta=True), requests, rpc, _receive_delta, _delta)

    async def _serve(
        self,
        client: ClientStream,
        requests: AsyncIterator[Any],
        rpc: Any,
        receive: _Receive,
        encode: Callable[[Push], Any],
    ) -> None:
        feed = self._feed
        if feed is None or self._draining:
            raise _draining()
        if self._streams >= self._most_streams:
            raise MeshError(
                errors_pb2.ERROR_REASON_QUEUE_FULL,
                f"the control plane already has {self._streams} xDS streams; retry later",
                retry_after_s=10.0,
            )
        self._streams += 1
        metrics.XDS_STREAMS.set(self._streams)
        woken = asyncio.Event()
        feed.streams.add(woken)
        reader = asyncio.create_task(self._read(client, requests, receive, woken))
        version = feed.catalog.version
        try:
            while not reader.done():
                woken.clear()
                if client.is_owed:
                    feed.publish()  # a new subscription gets the present state
                is_change, version = feed.catalog.version != version, feed.catalog.version
                for push in client.due(feed.catalog):
                    kind = _short(push.type_url)
                    metrics.XDS_PUSHES.labels(kind).inc()
                    await rpc.write(encode(push))
                    if is_change:
                        took = time.monotonic() - feed.changed_at
                        metrics.XDS_PUSH_SECONDS.labels(kind).observe(took)
                await woken.wait()
                if self._draining:
                    raise _draining()
            reader.result()
        finally:
            feed.streams.discard(woken)
            self._streams -= 1
            metrics.XDS_STREAMS.set(self._streams)
            await cancel_and_wait(reader)
            # The traceback of its error holds this frame, and the request that was refused: with
            # the reader in the frame they would hold one another until all garbage is collected.
            del reader

    async def _read(
        self,
        client: ClientStream,
        requests: AsyncIterator[Any],
        receive: _Receive,
        woken: asyncio.Event,
    ) -> None:
        """Takes the client's requests into its state until it ends the stream."""
        try:
            async for request in requests:
                self._note(request)
                receive(client, request)
                woken.set()
        except TooManyNamesError:
            raise field_invalid(
                "resource_names", "has too many names for one stream, or a name that is too long"
            ) from None
        finally:
            woken.set()

    def _note(self, request: Any) -> None:
        """Counts and logs a NACK, and logs an unknown type."""
        kind = _short(request.type_url)
        if request.type_url not in TYPES:
            name = one_line(request.type_url[:_MOST_WORDS])
            if self._is_news(kind, name):
                _log.info(
                    "xDS clients request resources of the type '%s', which the control plane "
                    "does not offer",
                    name,
                )
        elif request.HasField("error_detail"):
            metrics.XDS_NACKS.labels(kind).inc()
            words = one_line(request.error_detail.message[:_MOST_WORDS])
            if self._is_news(kind, words):
                _log.warning(
                    "an xDS client rejected a %s and keeps the previous version of this resource: "
                    "%s",
                    kind,
                    words,
                )

    def _is_news(self, kind: str, words: str) -> bool:
        """Whether it was not logged yet; beyond a bound nothing is."""
        if (kind, words) in self._logged or len(self._logged) >= _MOST_LOGGED:
            return False
        self._logged.add((kind, words))
        return True


def _receive_whole(client: ClientStream, request: Any) -> None:
    client.receive_whole(request.type_url, request.version_info, request.resource_names)


def _receive_delta(client: ClientStream, request: Any) -> None:
    client.receive_delta(
        request.type_url,
        request.resource_names_subscribe,
        request.resource_names_unsubscribe,
        request.initial_resource_versions,
        request.response_nonce,
    )


def _short(type_url: str) -> str:
    """A type's name without its package, such as `Listener`; of those that there are."""
    return type_url.rpartition(".")[2] if type_url in TYPES else "unknown"


def _whole(push: Push) -> Any:
    return discovery_pb2.DiscoveryResponse(
        type_url=push.type_url,
        version_info=push.version,
        nonce=push.nonce,
        resources=[one.body for one in push.resources],
    )


def _delta(push: Push) -> Any:
    return discovery_pb2.DeltaDiscoveryResponse(
        type_url=push.type_url,
        system_version_info=push.version,
        nonce=push.nonce,
        resources=[
            discovery_pb2.Resource(name=one.name, version=one.version, resource=one.body)
            for one in push.resources
        ],
        removed_resources=push.removed,
    )


def _draining() -> MeshError:
    return MeshError(errors_pb2.ERROR_REASON_DRAINING, "the control plane is shutting down")
