"""The HTTP edge of an agent's gateway: one address for all programs, dialects and rollouts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

from gymmesh_agent.gateway import metrics
from gymmesh_agent.gateway.bodies import HeldBodies
from gymmesh_agent.gateway.config import GatewayConfig
from gymmesh_agent.gateway.connections import GatewayConnections
from gymmesh_agent.gateway.dialects import DIALECTS, Dialect, GatewayRoute, dialect_for, route
from gymmesh_agent.gateway.environment_tools import MCP_PATH, EnvironmentTools
from gymmesh_agent.gateway.keys import keys_in, split_path, without_key
from gymmesh_agent.gateway.request import GatewayRequest, Refusal, RefusalKind, RequestKind
from gymmesh_agent.gateway.session import GatewaySession
from gymmesh_runtime.addresses import at_port, is_local, is_wildcard, log_exposure
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.serving import requests_log

if TYPE_CHECKING:
    # A third of what an agent's process imports, for those that run programs alone.
    from aiohttp import web

    from gymmesh_agent.gateway.replies import Writer

IS_FACE = True  # see tools/import_faces.py

T = TypeVar("T")
# A connection without a request, or with half of one, is closed after so many seconds.
_IDLE_S: Final = 30.0
_BODY_S: Final = 60.0
_WRITE_S: Final = 60.0
_STOP_S: Final = 2.0
_LARGEST_HEADER: Final = 1 << 15
# Longer bodies are read beside the event loop, so that other rollouts go on meanwhile.
_LARGE_BODY: Final = 1 << 17
_READERS: Final = 2
# Bodies that are held at a time, of all rollouts, in the longest body that is allowed.
_MOST_BODIES: Final = 4

_UNKNOWN_KEY: Final = Refusal(RefusalKind.UNAUTHORIZED, "The API key is not valid.")
_CROWDED: Final = Refusal(RefusalKind.AGAIN, "The gateway is busy; send the request again later.")
_TOO_SLOW: Final = Refusal(
    RefusalKind.AGAIN, f"The request's body did not arrive within {_BODY_S:g} s."
)
_TOO_MANY: Final = Refusal(
    RefusalKind.AGAIN, "The rollout has too many connections; send the request again later."
)


# Addresses of services of this process and of this machine.
_HERE: Final = ("direct:", "unix:")


class GatewayServer:
    """The gateway of one agent. Opened on first use, closed once.

    Args:
        agent: the agent's name, for metrics.
        model: the model name that programs see.
        opened: called when the gateway listens.

    Attributes:
        address: the host and port where it listens; empty until it is open.
        host: the host by which others connect to this machine; empty: nobody does.
    """

    def __init__(
        self, config: GatewayConfig, agent: str, model: str, opened: Callable[[], None]
    ) -> None:
        self.config = config
        self.address = ""
        self.host = ""
        self._agent = agent
        self._model = model
        self._opened = opened
        self._sessions: dict[str, GatewaySession] = {}
        self._opening = asyncio.Lock()
        self._http: web.Server | None = None
        self._server: asyncio.Server | None = None
        self._connections: GatewayConnections
        # Of its own: programs that send much hold up nothing else of this process.
        self._readers = ThreadPoolExecutor(_READERS, "gateway-bodies")
        self._bodies = HeldBodies(_MOST_BODIES * config.max_body_bytes)
        self._started = int(time.time())

    async def open(self) -> None:
        """Start to listen, if the gateway does not listen yet. Raises ConfigError, and OSError
        if the port is taken.
        """
        async with self._opening:
            if self.address:
                return
            host, port = self.config.address()
            if not (is_local(host) or self.config.plain):
                raise ConfigError(
                    f"the gateway does not listen on {host}, because keys and conversations would "
                    "be sent unencrypted; listen on 127.0.0.1, or set gateway.plain: true",
                    path=f"agents.{self._agent}.gateway.listen",
                )
            from aiohttp import web

            self._http = web.Server(
                self._serve,
                handler_cancellation=True,
                access_log=None,
                logger=requests_log("gymmesh.agent.gateway"),
                keepalive_timeout=_IDLE_S,
                lingering_time=_STOP_S,
                max_field_size=_LARGEST_HEADER,
                max_line_size=_LARGEST_HEADER,
            )
            gauge = metrics.GATEWAY_CONNECTIONS.labels(self._agent)
            self._connections = GatewayConnections(self._http, self.config.connections, gauge)
            loop = asyncio.get_running_loop()
            try:
                self._server = await loop.create_server(self._connections, host, port, backlog=512)
            except OSError as error:
                problem = f"the gateway cannot listen on {self.config.listen}: {error.strerror}"
                raise OSError(error.errno, problem) from error
            self.address = at_port(host, self._server.sockets[0].getsockname()[1])
            log_exposure(
                "The gateway for programs listens", host, "call models with a key", tokens=True
            )
            self._opened()

    def url_for(self, target: str) -> str:
        """The root of the gateway's address for a service at this registered address.

        Raises ValueError if the service is on another machine and the gateway listens only on this
        one. Otherwise a program that listens at that port over there would get the rollout's key.
        """
        host = target.rpartition(":")[0].strip("[]")
        if target.startswith(_HERE) or is_local(host) or host == self.host:
            return f"http://{self.address}"
        own = self.address.rpartition(":")[0].strip("[]")
        if is_local(own):
            raise ValueError(f"the environment is at {host}, but the gateway listens only on {own}")
        return f"http://{self.reached_at(self.host)}"

    def reached_at(self, host: str) -> str:
        """The address for other machines, which connect to this machine by `host`."""
        own, _, port = self.address.rpartition(":")
        return at_port(host, int(port)) if host and is_wildcard(own.strip("[]")) else self.address

    async def close(self) -> None:
        """End all connections in bounded time; may be called twice."""
        if self._server is not None:
            self._server.close()
        if self._http is not None:
            await self._http.shutdown(_STOP_S)
        self._readers.shutdown(wait=False, cancel_futures=True)

    def add(self, session: GatewaySession) -> None:
        """Serve a rollout's programs from now on."""
        self._sessions[session.key] = session

    def remove(self, session: GatewaySession) -> None:
        """The rollout's key gives no access from now on."""
        self._sessions.pop(session.key, None)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        from gymmesh_agent.gateway.replies import Writer

        began = time.monotonic()
        headers = {name.lower(): value for name, value in request.headers.items()}
        key, path = split_path(request.rel_url.raw_path)
        asked = route(request.method, path, request.query, headers)
        dialect = (
            dialect_for(path, headers) if isinstance(asked, Refusal) else DIALECTS[asked.dialect]
        )
        writer = Writer(request, dialect, _WRITE_S, self.config.keep_alive_s)
        session = self._session_of((key,) if key else keys_in(headers, request.query))
        outcome = "cut"
        try:
            if session is None:
                outcome = await writer.refuse(_UNKNOWN_KEY, close=True)
            elif not self._welcome(session, request):
                outcome = await writer.refuse(_TOO_MANY, close=True)
            elif path == MCP_PATH and session.tools is not None:
                outcome = await self._use_tools(session, session.tools, request, writer)
            elif isinstance(asked, Refusal):
                outcome = await writer.refuse(asked)
            elif asked.kind in (RequestKind.LIST_MODELS, RequestKind.GET_MODEL):
                outcome = await writer.whole(self._about_models(dialect, asked))
            else:
                read = partial(dialect.read, asked, headers, seen=session.seen)
                outcome = await self._answer(session, request, read, dialect, writer, began)
        except (ConnectionError, TimeoutError):
            writer.abort()
        finally:
            metrics.GATEWAY_REQUESTS.labels(self._agent, dialect.name, outcome).inc()
        return writer.response

    def _session_of(self, keys: tuple[str, ...]) -> GatewaySession | None:
        return next((found for key in keys if (found := self._sessions.get(key))), None)

    def _welcome(self, session: GatewaySession, request: web.BaseRequest) -> bool:
        """Whether the rollout may use this connection."""
        self._connections.known(request.protocol)
        most = self.config.connections_per_rollout
        return session.connections.admit(request.protocol, most)

    def _about_models(self, dialect: Dialect, asked: GatewayRoute) -> bytes:
        if asked.kind is RequestKind.LIST_MODELS:
            return dialect.write_models([self._model], self._started)
        return dialect.write_model(asked.model, self._started)

    async def _answer(
        self,
        session: GatewaySession,
        request: web.BaseRequest,
        read_body: Callable[[bytes], GatewayRequest | Refusal],
        dialect: Dialect,
        writer: Writer,
        began: float,
    ) -> str:
        """Answer a request with a body; returns how that ended."""
        read, length = await self._read(session, request, read_body)
        if isinstance(read, Refusal):
            return await writer.refuse(read)
        if read.kind is RequestKind.COUNT_TOKENS:
            return await writer.whole(dialect.write_token_count(session.count_tokens(length)))
        if session.connections.answering >= self.config.calls_per_rollout:
            return await writer.refuse(_CROWDED)
        with session.connections.answer(request.protocol):
            return await self._answer_call(session, request, read, length, writer, began)

    async def _answer_call(
        self,
        session: GatewaySession,
        request: web.BaseRequest,
        read: GatewayRequest,
        length: int,
        writer: Writer,
        began: float,
    ) -> str:
        """Answer a request for a model call; returns how that ended."""
        caller = request.transport
        if caller is None:
            return "cut"
        pending = session.submit(read, length, caller)
        if isinstance(pending, Refusal):
            return await writer.refuse(pending)
        delivered = False
        try:
            outcome = await writer.answer(read, pending)
            # It may have hung up before its end.
            delivered = outcome == "answered" and not caller.is_closing()
        finally:
            session.ended(caller, delivered=delivered)
        if delivered:
            spent = time.monotonic() - began - pending.model_s
            metrics.GATEWAY_OVERHEAD_SECONDS.labels(self._agent).observe(max(0.0, spent))
        return outcome

    async def _use_tools(
        self,
        session: GatewaySession,
        tools: EnvironmentTools,
        request: web.BaseRequest,
        writer: Writer,
    ) -> str:
        """Answer a request of MCP; returns how that ended."""
        if request.method != "POST":
            return await writer.status(HTTPStatus.METHOD_NOT_ALLOWED)
        read, _ = await self._read(session, request, bytes)
        if isinstance(read, Refusal):
            return await writer.refuse(read)
        if session.connections.answering >= self.config.calls_per_rollout:
            return await writer.refuse(_CROWDED)
        with session.connections.answer(request.protocol):
            answer = await session.use_tools(tools, read)
            if answer is None:
                return await writer.status(HTTPStatus.ACCEPTED)
            return await writer.whole(answer)

    async def _read(
        self,
        session: GatewaySession,
        request: web.BaseRequest,
        read_body: Callable[[bytes], T | Refusal],
    ) -> tuple[T | Refusal, int]:
        """The request, or why it cannot be read, and the length of its body.

        The key is replaced before anything reads the body. So a program that shows its environment
        variables to the model puts the key neither into the model's prompt nor into a row.
        """
        from aiohttp import web

        most = self.config.max_body_bytes
        if (request.content_length or 0) > most:
            return _too_large(most), 0
        if request.headers.get("Expect", "").lower() == "100-continue":
            # Asked for before a long body; the server of aiohttp leaves it to its applications.
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = bytearray()
        with self._bodies.holding(session) as hold:
            try:
                async with asyncio.timeout(_BODY_S):
                    while piece := await request.content.readany():
                        body += piece
                        if len(body) > most:
                            return _too_large(most), 0
                        if not hold(len(piece)):
                            return _CROWDED, 0
            except TimeoutError:
                return _TOO_SLOW, 0
            except web.RequestPayloadError as error:
                return Refusal(
                    RefusalKind.INVALID, f"The request's body cannot be read: {error}"
                ), 0
            whole = without_key(bytes(body), session.key)
            if len(whole) < _LARGE_BODY:
                return read_body(whole), len(whole)
            loop = asyncio.get_running_loop()
            async with session.reading:  # one at a time: the other readers are for other rollouts
                return await loop.run_in_executor(self._readers, read_body, whole), len(whole)


def _too_large(most: int) -> Refusal:
    return Refusal(RefusalKind.TOO_LARGE, f"The request's body is longer than {most} bytes.")
