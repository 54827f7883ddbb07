"""Calls below the contract's messages: raw bytes, and the health service.

{raw: resource.CallTool, bytes: "ff", expect: {error: {…}}}    bytes that are no request
{health: resource.ResourceService, expect: SERVING}            "" for the server as a whole
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, runtime_checkable

from grpc_health.v1 import health_pb2

from gymmesh_conformance import laws
from gymmesh_conformance.errors import CallError
from gymmesh_conformance.matching import mismatches
from gymmesh_conformance.paths import Path
from gymmesh_conformance.services import full_name, rpc

_TIMEOUT_S: Final = 10.0
_CHECK: Final = "/grpc.health.v1.Health/Check"


@runtime_checkable
class WirePath(Path, Protocol):
    """A path that can send any bytes to any method, and metadata with any call."""

    def sending(self, metadata: Mapping[str, str]) -> Path:
        """The same path, whose calls have this metadata."""

    async def raw(self, method: str, data: bytes, timeout: float, *, streams: bool) -> bytes:
        """Sends a request; gives the first response. Raises CallError."""


async def send_raw(path: Any, step: Mapping[str, Any]) -> list[str]:
    """Sends bytes that are no request; what is wrong with the answer."""
    method = rpc(step["raw"])
    try:
        await path.raw(
            method.path, bytes.fromhex(step["bytes"]), _TIMEOUT_S, streams=method.streams_down
        )
    except CallError as error:
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
