"""The Prometheus endpoint of a process, and the heartbeat of its event loop."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
from contextlib import suppress
from http.server import ThreadingHTTPServer
from threading import Thread
from time import monotonic
from typing import Any, Final

from prometheus_client import MetricsHandler

from gymmesh_runtime import metrics
from gymmesh_runtime.addresses import METRICS_HARM, at_port, family_of, log_exposure
from gymmesh_runtime.security import Readers

_log = logging.getLogger("gymmesh.metrics")

_HEARTBEAT_S: Final = 1.0
# How long stopping may take. The library's own start_http_server polls every half second, which
# a mesh of processes, stopped one after the other, adds up.
_POLL_S: Final = 0.05
# Each connection takes a thread, so there is a bound to how many there are, and to how long one
# lasts, whether its caller says nothing, says it slowly, or does not read the answer.
_MOST_CONNECTIONS: Final = 64
_CONNECTION_S: Final = 10.0
_BACKLOG: Final = 128


class _Handler(MetricsHandler):
    registry = metrics.REGISTRY
    server: _MetricsServer

    def do_GET(self) -> None:
        certificate = None
        if isinstance(self.connection, ssl.SSLSocket):
            certificate = self.connection.getpeercert()
        authorization = self.headers.get("Authorization", "")
        refused = self.server.readers.refusal("GET /metrics", authorization, certificate)
        if refused is not None:
            body = f"{refused.message}\n".encode()
            self.send_response(401)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("WWW-Authenticate", "Bearer")
            self.end_headers()
            self.wfile.write(body)
            return
        try:
            super().do_GET()
        except (ValueError, TypeError):  # of a path that is no URL, an Accept that makes no sense
            self.send_error(400)

    def version_string(self) -> str:
        return "gymmesh"


class _MetricsServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = _BACKLOG

    def __init__(
        self, family: socket.AddressFamily, address: tuple[str, int], readers: Readers
    ) -> None:
        self.address_family = family
        self.readers = readers
        self._until: dict[socket.socket, float] = {}  # when each connection is closed
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._until) >= _MOST_CONNECTIONS:
            self.shutdown_request(request)
            return
        self._until[request] = monotonic() + _CONNECTION_S
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        # In the request's own thread, so that a slow handshake keeps nobody else waiting.
        if self.readers.tls is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(_CONNECTION_S)  # of the handshake as a whole
        with self.readers.tls.wrap_socket(request, server_side=True) as encrypted:
            # From here on the connection is this socket's.
            self._until[encrypted] = self._until.pop(request)
            try:
                super().finish_request(encrypted, client_address)
            finally:
                del self._until[encrypted]

    def service_actions(self) -> None:
        now = monotonic()
        for request, until in list(self._until.items()):
            if now > until:
                with suppress(OSError):
                    # Its thread finds that it is over. Not SSLSocket's own, which would have what
                    # follows read and written as plain text.
                    socket.socket.shutdown(request, socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        self._until.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Disconnected callers and failed TLS handshakes are not logged."""
        error = sys.exception()
        if isinstance(error, OSError):  # TLS's own errors and time-outs, too
            _log.debug("a scrape from %s was aborted: %s", client_address, error)
        else:
            _log.error("the server of /metrics could not answer a request", exc_info=error)


class MetricsEndpoint:
    """Serves ``/metrics`` from its own thread, so that metrics are readable while the loop is
    busy.
    """

    def __init__(self, server: _MetricsServer, host: str) -> None:
        self._server = server
        self.port = server.server_port
        self.address = at_port(host, self.port)
        serve = server.serve_forever
        self._thread = Thread(target=serve, args=(_POLL_S,), name="metrics", daemon=True)
        self._thread.start()

    @classmethod
    def start(cls, host: str, port: int, readers: Readers | None = None) -> MetricsEndpoint:
        """Starts it; ``port`` 0: the system chooses. Raises OSError if the port is taken.

        ``readers`` decides who may read; None: no TLS, and everyone who can connect may read.
        """
        readers = readers or Readers()
        try:
            server = _MetricsServer(family_of(host), (host, port), readers)
        except OSError as exc:
            place = at_port(host, port)
            raise OSError(f"cannot serve metrics on {place}: {exc.strerror or exc}") from exc
        if readers.tls is None:
            log_exposure("metrics are served", host, METRICS_HARM)
        return cls(server, host)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=2.0)


async def heartbeat() -> None:
    """Measures for ever how late the event loop runs, which shows blocking code."""
    loop: Any = asyncio.get_running_loop()
    metrics.EVENT_LOOP_LAG_SECONDS.labels()  # 0 until the first one
    while True:
        before = loop.time()
        await asyncio.sleep(_HEARTBEAT_S)
        metrics.EVENT_LOOP_LAG_SECONDS.set(max(0.0, loop.time() - before - _HEARTBEAT_S))
