"""Health on a separate port, for probes without TLS and without a certificate.

The port serves only `grpc.health.v1.Health`. So a probe learns whether the process is SERVING, and
can call nothing else.
"""

from __future__ import annotations

from typing import Any

from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from gymmesh_runtime.addresses import at_port
from gymmesh_runtime.wire.listener import Listener

_STATUS = health_pb2.HealthCheckResponse


class HealthPort:
    """A plain gRPC server with the health of a whole process: NOT_SERVING until it is set."""

    def __init__(self) -> None:
        self._server = Listener()
        self._health = health.aio.HealthServicer()
        add: Any = health_pb2_grpc.add_HealthServicer_to_server
        add(self._health, self._server)

    async def start(self, host: str, port: int) -> int:
        """Binds and starts; returns the port. Raises OSError if the port is taken."""
        await self.set_serving(False)
        place = at_port(host, port)
        try:
            return await self._server.start(place, None)
        except RuntimeError as error:
            raise OSError(f"cannot serve health on {place}: the port is taken") from error

    async def set_serving(self, serving: bool) -> None:
        """Sets the health of the process, which has the empty name."""
        await self._health.set("", _STATUS.SERVING if serving else _STATUS.NOT_SERVING)

    async def stop(self) -> None:
        """Ends at once, without waiting for probes."""
        await self._server.stop(None)
