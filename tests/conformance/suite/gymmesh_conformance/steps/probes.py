"""Calls below the contract's messages: raw bytes, and the health service.

{raw: resource.CallTool, bytes: "ff", expect: {error: {…}}}    bytes that are no request
{health: resource.ResourceService, expect: SERVING}            "" for the server as a whole
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Protocol, runtime_checkable

import grpc
from grpc_health.v1 import health_pb2

from gymmesh_conformance import laws
from gymmesh_conformance.cases import mismatches
from gymmesh_conformance.errors import CallError
from gymmesh_conformance.paths import Path
from gymmesh_conformance.services import full_name, rpc

_TIMEOUT_S: Final = 10.0
# With these, and without details, gRPC libraries answer what they cannot decode.
_OF_LIBRARIES: Final = (
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNKNOWN,
)
_CHECK: Final = "/grpc.health.v1.Health/Check"
_WATCH: Final = "/grpc.health.v1.Health/Watch"
_WATCH_S: Final = 120.0


@runtime_checkable
class WirePath(Path, Protocol):
    """A path that can send any bytes to any method, and metadata with any call."""

    def sending(self, metadata: Mapping[str, str]) -> Path:
        """The same path, whose calls have this metadata."""

    async def raw(self, method: str, data: bytes, timeout: float, *, streams: bool) -> bytes:
        """Sends a request; gives the first response. Raises CallError."""

    def raw_stream(self, method: str, data: bytes, timeout: float) -> AsyncIterator[bytes]:
        """Sends a request; gives all responses. Raises CallError."""


async def send_raw(path: Any, step: Mapping[str, Any]) -> list[str]:
    """Sends bytes that are no request; what is wrong with the answer."""
    method = rpc(step["raw"])
    try:
        await path.raw(
            method.path, bytes.fromhex(step["bytes"]), _TIMEOUT_S, streams=method.streams_down
        )
    except CallError as error:
        if error.status is None and error.code in _OF_LIBRARIES:
            return await check_health(path, {"health": ""})
        got = {"code": error.code.name, "reason": error.reason, "metadata": error.metadata}
        return laws.error_problems(error) + mismatches(step["expect"]["error"], got, "error")
    return ["a request that cannot be decoded was answered with a success"]


async def check_health(path: Any, step: Mapping[str, Any]) -> list[str]:
    """Asks for the health of a service; what is wrong with the answer."""
    name = full_name(step["health"]) if step["health"] else ""
    request = health_pb2.HealthCheckRequest(service=name)
    try:
        data = await path.raw(_CHECK, request.SerializeToString(), _TIMEOUT_S, streams=False)
    except CallError as error:
        return [f"the health of {name!r}: {error}"]
    status = health_pb2.HealthCheckResponse.FromString(data).status
    found = health_pb2.HealthCheckResponse.ServingStatus.Name(status)
    wanted = step.get("expect", "SERVING")
    return [] if found == wanted else [f"the health of {name!r} is {found}, not {wanted}"]


class HealthWatch:
    """A watch of the health of the server as a whole. `close` it in any case."""

    def __init__(self, path: WirePath) -> None:
        self._heard: asyncio.Queue[str] = asyncio.Queue()
        self._reader = asyncio.create_task(self._read(path))

    async def becomes(self, wanted: str) -> list[str]:
        """Waits for a status; what is wrong when it does not come."""
        found = "nothing"
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                while found != wanted:
                    found = await self._heard.get()
        except TimeoutError:
            return [f"the health did not become {wanted}; the last that came is {found}"]
        return []

    async def close(self) -> None:
        """Cancels the call."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self, path: WirePath) -> None:
        request = health_pb2.HealthCheckRequest()
        try:
            async for data in path.raw_stream(_WATCH, request.SerializeToString(), _WATCH_S):
                status = health_pb2.HealthCheckResponse.FromString(data).status
                name = health_pb2.HealthCheckResponse.ServingStatus.Name(status)
                self._heard.put_nowait(name)
        except CallError as error:
            self._heard.put_nowait(str(error))
