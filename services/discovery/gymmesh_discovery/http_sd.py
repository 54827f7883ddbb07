"""The registry as Prometheus' HTTP service discovery: the scrape targets, as JSON over HTTP.

    GET /v1/http-sd -> [{"targets": ["127.0.0.1:40211"], "labels": {"__meta_gymmesh_name": …}}]

A process is one target, even if it runs several services. Labels for relabelling have the values of
all its services, sorted and separated by commas. The discovery service's own process is a target,
too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import orjson
from aiohttp import web

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery.backends.base import RegistryBackend
from gymmesh_discovery.config import split_host_port
from gymmesh_runtime.addresses import at_port, log_exposure
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.security import Credentials, Readers, check_plain
from gymmesh_runtime.serving import HttpConnections, requests_log

Health = discovery_pb2.Health

_log = logging.getLogger("gymmesh.discovery")

PATH: Final = "/v1/http-sd"
_STOP_S: Final = 1.0
#: A connection is for one request.
_CONNECTION_S: Final = 5.0


class HttpSdEdge:
    """Serves the targets at an address, host and port. Port 0: the system chooses."""

    def __init__(self, address: str) -> None:
        self._host, self._port = split_address(address)
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._own: list[discovery_pb2.Instance] = []
        self.address = ""

    async def open(self, backend: RegistryBackend, credentials: Credentials) -> None:
        """Listens. Raises OSError if the port is taken, and the same ConfigError as gRPC
        servers.
        """
        check_plain(self._host, credentials.config, "HTTP service discovery")
        readers = Readers(credentials)
        app = web.Application()
        app.router.add_get(PATH, partial(self._targets, backend, readers))
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=_STOP_S,
            logger=requests_log("gymmesh.discovery.http_sd"),
        )
        await self._runner.setup()
        try:
            self._server = await asyncio.get_running_loop().create_server(
                HttpConnections(self._runner, _CONNECTION_S),
                self._host,
                self._port,
                ssl=readers.tls,
            )
        except OSError as error:
            place = at_port(self._host, self._port)
            await self._runner.cleanup()
            problem = f"cannot serve HTTP service discovery on {place}: {error.strerror}"
            raise OSError(problem) from error
        self.address = at_port(self._host, self._server.sockets[0].getsockname()[1])
        if readers.tls is None:
            log_exposure(
                "HTTP service discovery is served", self._host, "read the addresses of the services"
            )
        _log.info("HTTP service discovery is at %s://%s%s", readers.scheme, self.address, PATH)

    def served_as(self, instance: discovery_pb2.Instance) -> None:
        """Lists the discovery service's own metrics, too."""
        self._own = [instance]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * _STOP_S):
                    await self._runner.cleanup()

    def drain(self) -> None:
        """Does nothing: requests are short."""

    def extras(self) -> list[Callable[[Any], None]]:
        """Nothing: the edge has no gRPC service."""
        return []

    async def _targets(
        self, backend: RegistryBackend, readers: Readers, request: web.Request
    ) -> web.Response:
        connection = request.transport
        shown = None if connection is None else connection.get_extra_info("peercert")
        authorization = request.headers.get("Authorization", "")
        refused = readers.refusal(f"GET {PATH}", authorization, shown)
        if refused is None:
            _, listed = backend.snapshot("", "")
            # A registry elsewhere, such as Kubernetes', may list the discovery service as well.
            ids = {one.id for one in listed}
            found = targets_of(listed + [one for one in self._own if one.id not in ids])
            response = web.Response(body=orjson.dumps(found), content_type="application/json")
        else:
            headers = {"WWW-Authenticate": "Bearer"}
            response = web.Response(status=401, text=f"{refused.message}\n", headers=headers)
        response.force_close()
        return response


def targets_of(instances: list[discovery_pb2.Instance]) -> list[dict[str, Any]]:
    """The targets by address; instances without a usable address are skipped."""
    by_address: dict[str, list[discovery_pb2.Instance]] = {}
    for one in instances:
        if split_host_port(one.metrics_address) is not None:
            by_address.setdefault(one.metrics_address, []).append(one)
    return [
        {"targets": [address], "labels": _labels(members)}
        for address, members in sorted(by_address.items())
    ]


def split_address(address: str) -> tuple[str, int]:
    """Host and port. Raises ConfigError."""
    found = split_host_port(address)
    if found is None:
        raise ConfigError(
            f"'{address}' is not HOST:PORT, such as 127.0.0.1:9402", path="discovery.http_sd"
        )
    return found


def _labels(members: list[discovery_pb2.Instance]) -> dict[str, str]:
    facts = {
        "id": [one.id for one in members],
        "service": [one.service for one in members],
        "name": [one.name for one in members],
        "health": [Health.Name(one.health).removeprefix("HEALTH_").lower() for one in members],
        "region": [one.locality.region for one in members],
        "zone": [one.locality.zone for one in members],
        "host": [one.locality.host for one in members],
    }
    return {f"__meta_gymmesh_{key}": ",".join(sorted(set(of))) for key, of in facts.items()}
