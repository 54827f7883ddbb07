"""Serves an environment's protocols on one HTTP port, beside gRPC.

Invariant: this server limits what HTTP leaves unlimited: connections, connections without a
request, bodies, and the wait at a stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from aiohttp import web

from gymmesh_resource.config import PROTOCOLS, ProtocolName, ProtocolsConfig
from gymmesh_resource.protocols.facade import EnvironmentFacade, OfferedService
from gymmesh_resource.protocols.nemo_gym import NemoGymEdge
from gymmesh_resource.protocols.openenv import OpenEnvEdge
from gymmesh_resource.protocols.ors import OrsEdge
from gymmesh_resource.protocols.replies import HttpRefusal, document, error_answer
from gymmesh_resource.protocols.task_api import TaskApi
from gymmesh_resource.protocols.tasks import TaskTable
from gymmesh_resource.serving import ServedEnvironment
from gymmesh_runtime.addresses import TOOLS_HARM, at_port, is_local, is_wildcard, log_exposure
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError, unforeseen
from gymmesh_runtime.security import TokenFile, presented
from gymmesh_runtime.serving import requests_log

# A connection without a request, and between two, in seconds.
_SILENT_S: Final = 30.0
_KEEP_ALIVE_S: Final = 75.0
_WRITE_S: Final = 60.0
_STOP_S: Final = 4.0
_HEALTH: Final = "/health"

_LOGGER = logging.getLogger("gymmesh.resource")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ProtocolEdge(Protocol):
    """One protocol's HTTP routes over the façade."""

    def problem(self) -> str:
        """Why the protocol can't serve this environment; empty if it can."""

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Adds its routes."""

    async def close(self) -> None:
        """Closes the sessions of its clients."""


class ProtocolServer:
    """The protocols of one environment, on the address that the configuration names.

    Attributes:
        url: where it serves; empty while it does not.

    Raises ConfigError for an address that others could reach, and for tasks that cannot be read.
    """

    def __init__(self, service: OfferedService, served: ServedEnvironment) -> None:
        config = served.config.protocols
        assert config is not None
        self._config = config
        self._place = f"environments.{service.name}.protocols"
        check_access(config, self._place)
        self._token = (
            TokenFile(config.token_file, f"{self._place}.token_file") if config.token_file else None
        )
        self._facade = EnvironmentFacade(service)
        self._tasks = TaskTable(service.name, config.tasks, served.examples, served.check)
        self._idle_s = float(served.config.session_idle_s)
        self._limit = served.config.session_limit
        self._edges: list[ProtocolEdge] = []
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._connections: _Connections
        self.url = ""

    async def open(self) -> None:
        """Begin to serve.

        Raises ConfigError for an environment that can't be served, and for a port in use.
        """
        await self._facade.ask()
        app = web.Application(middlewares=[self._guard], client_max_size=self._config.body_bytes)
        edges = self._make_edges()
        app.router.add_get(_HEALTH, self._health)
        if set(edges) & {"openenv", "ors"}:
            TaskApi(self._facade.name, self._tasks).add_routes(app.router)
        for name, edge in edges.items():
            edge.add_routes(app.router)
            problem = self._facade.problem() or edge.problem()
            if problem:
                raise ConfigError(
                    f"the environment {self._facade.name!r} can't be served as {name}: {problem}",
                    path=f"{self._place}.serve",
                )
        self._edges = list(edges.values())
        await self._listen(app)
        names = ", ".join(edges)
        _LOGGER.info("environment %s: served as %s at %s", self._facade.name, names, self.url)
        what = f"environment {self._facade.name} is served as {names}"
        log_exposure(what, self._config.host, TOOLS_HARM, tokens=True)

    async def close(self) -> None:
        """Stop serving and close the sessions of its clients; harmless when called twice."""
        if self._server is not None:
            self._server.close()
            self._server = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await asyncio.gather(*(edge.close() for edge in self._edges))
        if self._runner is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * _STOP_S):
                    await self._runner.cleanup()
            self._runner = None
        self.url = ""

    def _make_edges(self) -> dict[ProtocolName, ProtocolEdge]:
        """Those that are asked for; nemo_gym last, whose tools' paths may be any."""
        wanted = set(self._config.serve)
        facade, tasks, bytes_ = self._facade, self._tasks, self._config.body_bytes
        made: dict[ProtocolName, ProtocolEdge] = {}
        if "openenv" in wanted:
            made["openenv"] = OpenEnvEdge(
                facade, tasks, idle_s=self._idle_s, most=self._limit, body_bytes=bytes_
            )
        if "ors" in wanted:
            made["ors"] = OrsEdge(facade, tasks)
        if "nemo_gym" in wanted:
            made["nemo_gym"] = NemoGymEdge(facade, tasks)
        return made

    async def _listen(self, app: web.Application) -> None:
        self._runner = web.AppRunner(
            app,
            access_log=None,
            keepalive_timeout=_KEEP_ALIVE_S,
            shutdown_timeout=_STOP_S,
            logger=requests_log("gymmesh.resource.protocols"),
        )
        await self._runner.setup()
        connections = self._connections = _Connections(self._runner, self._config.connections)
        host, port = self._config.host, self._config.port
        try:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(connections, host, port, backlog=512)
        except OSError as error:
            await self._runner.cleanup()
            self._runner = None
            raise ConfigError(
                f"cannot listen on {at_port(host, port)}: {error.strerror}. Choose another port, 0 "
                "for a free one, or another host",
                path=self._place,
            ) from None
        bound = self._server.sockets[0].getsockname()[1]
        self.url = f"http://{at_port('127.0.0.1' if is_wildcard(host) else host, bound)}"

    async def _health(self, request: web.Request) -> web.Response:
        return document({"status": "healthy"})

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        self._connections.known(request.protocol)
        answer = await self._answer(request, handler)
        if isinstance(answer, web.Response) and not answer.prepared:
            try:
                async with asyncio.timeout(_WRITE_S):
                    await answer.prepare(request)
                    await answer.write_eof()
            except TimeoutError:  # the client reads nothing
                if request.transport is not None:
                    request.transport.abort()
        return answer

    async def _answer(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        # Pages that a browser shows may send requests to this machine; clients have no Origin.
        if "Origin" in request.headers:
            return _refused(403, "the server refuses requests from web pages")
        if request.path != _HEALTH and not self._knows(request.headers):
            return _refused(
                401, "send the token in a header: Authorization: Bearer TOKEN, or X-API-Key: TOKEN"
            )
        try:
            return await handler(request)
        except MeshError as error:
            return error_answer(error)
        except HttpRefusal as refusal:
            return refusal.answer()
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:
            return error_answer(unforeseen(error, f"{request.method} {request.path}"))

    def _knows(self, headers: Mapping[str, str]) -> bool:
        """Whether the client may come in."""
        if self._token is None:
            return True
        shown = presented(headers.get("Authorization", "")) or headers.get("X-API-Key", "")
        wanted = self._token.current()
        return hmac.compare_digest(shown.encode("utf-8", "replace"), wanted.encode())


class _Connections:
    """Makes the protocols for `loop.create_server`: bounded in number, and closed when no request
    comes.
    """

    def __init__(self, runner: web.AppRunner, most: int) -> None:
        self._runner = runner
        self._most = most
        self._strangers: set[Any] = set()

    def __call__(self) -> asyncio.Protocol:
        server = self._runner.server
        if server is None or len(server.connections) >= self._most:
            return _OneTooMany()
        connection = server()
        self._strangers.add(connection)
        asyncio.get_running_loop().call_later(_SILENT_S, self._cut, connection)
        return connection

    def known(self, connection: Any) -> None:
        """A connection has sent a request."""
        self._strangers.discard(connection)

    def _cut(self, connection: Any) -> None:
        if connection in self._strangers:
            self._strangers.discard(connection)
            connection.force_close()


class _OneTooMany(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def check_access(config: ProtocolsConfig, place: str) -> None:
    """Raises ConfigError if no protocol is named or one is named twice, and for a host that other
    machines reach, unless that is allowed and a token is required.
    """
    if not config.serve or len(set(config.serve)) < len(config.serve):
        raise ConfigError(
            f"must name each protocol once. The protocols are: {', '.join(PROTOCOLS)}",
            path=f"{place}.serve",
        )
    if is_local(config.host):
        return
    if not config.allow_other_hosts:
        raise ConfigError(
            f"{config.host!r} is reachable from other machines, and its traffic is not "
            "encrypted. Use 127.0.0.1, or set allow_other_hosts: true",
            path=f"{place}.host",
        )
    if not config.token_file:
        raise ConfigError(
            f"{config.host!r} is reachable from other machines, so clients must send a token. Set "
            "token_file to a file that has the token",
            path=f"{place}.token_file",
        )


def _refused(status: int, why: str) -> web.Response:
    answer = document({"detail": why}, status)
    answer.force_close()
    return answer
