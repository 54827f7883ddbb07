"""Clients of the control plane: a bare stream, and gRPC channels that are called on steadily."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from envoy.config.core.v3 import health_check_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.service.discovery.v3 import discovery_pb2

from gymmesh_cli.services.xds import document
from gymmesh_discovery.xds.names import CLUSTER, ENDPOINTS, LISTENER, ROUTE
from tests.unit.runtime.probe import until
from tests.xds.plane import ask

CHANNELS: Final = 4
_QUIET_S: Final = 0.5


@dataclass
class Stream:
    """A client that reads what it is sent, and notes when."""

    call: Any
    versions: list[tuple[int, float]] = field(default_factory=list)
    last: Any = None

    async def follow(self, name: str) -> None:
        """Subscribes as gRPC does, and acknowledges."""
        for type_url in (LISTENER, ROUTE, CLUSTER, ENDPOINTS):
            await self.call.write(
                discovery_pb2.DiscoveryRequest(type_url=type_url, resource_names=[name])
            )
        while (response := await self.call.read()) is not grpc.aio.EOF:
            if response.type_url == ENDPOINTS:
                self.versions.append((int(response.version_info), time.monotonic()))
                self.last = response
            ack = discovery_pb2.DiscoveryRequest(
                type_url=response.type_url, resource_names=[name],
                version_info=response.version_info, response_nonce=response.nonce,
            )  # fmt: skip
            await self.call.write(ack)

    def healthy(self) -> set[int]:
        """The ports of the endpoints that take calls, as it knows them."""
        found = endpoint_pb2.ClusterLoadAssignment.FromString(self.last.resources[0].value)
        return {
            one.endpoint.address.socket_address.port_value
            for place in found.endpoints
            for one in place.lb_endpoints
            if one.health_status == health_check_pb2.HEALTHY
        }


@dataclass
class Callers:
    """Calls over some channels, one after another on each: when the last was sent to whom.

    Those that found nobody there are in ``lost``, with the time at which they were sent.
    """

    sent: dict[str, float] = field(default_factory=dict)
    lost: list[float] = field(default_factory=list)

    async def call_on(self, channel: grpc.aio.Channel) -> None:
        """Calls until it is cancelled."""
        while True:
            at = time.monotonic()
            try:
                who = await ask(channel)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                self.lost.append(at)
            else:
                self.sent[who] = max(at, self.sent.get(who, 0.0))

    async def reach(self, who: str) -> None:
        """Until somebody is called that was just put into service."""
        now = time.monotonic()
        await until(lambda: self.sent.get(who, 0.0) > now)

    async def last_to(self, who: str) -> float:
        """When the last call was sent to somebody: none has been for a while."""
        await until(lambda: time.monotonic() - self.sent[who] > _QUIET_S)
        return self.sent[who]


@asynccontextmanager
async def calling(control_plane: str, target: str) -> AsyncIterator[Callers]:
    """Channels that find a target through a control plane, called on for as long as it is open."""
    gc.collect()  # gRPC keeps the bootstrap of a channel before for as long as that lives
    os.environ["GRPC_XDS_BOOTSTRAP_CONFIG"] = json.dumps(document(control_plane, "bench"))
    callers = Callers()
    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(target))
            for _ in range(CHANNELS)
        ]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(callers.call_on(one)) for one in channels]
            try:
                yield callers
            finally:
                for one in tasks:
                    one.cancel()
