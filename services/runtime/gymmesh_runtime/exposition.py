"""The Prometheus endpoint of a process, and the heartbeat of its event loop."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
from threading import Thread
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from gymmesh_runtime import metrics
from gymmesh_runtime.listening import METRICS_HARM, at_port, family_of, log_exposure
from gymmesh_runtime.security.readers import Readers

_log = logging.getLogger("gymmesh.serve")

_HEARTBEAT_S: Final = 1.0
# How long stopping may take. The library's own start_http_server polls every half second, which
# a mesh of processes, stopped one after the other, adds up.
_POLL_S: Final = 0.05
# How long a reader may take for its handshake, and for each read and write.
_TIMEOUT_S: Final = 30.0
_CERTIFICATE: Final = "gymmesh.certificate"  # of the reader, in WSGI's environment


class _Handler(WSGIRequestHandler):
    timeout = _TIMEOUT_S

    def get_environ(self) -> dict[str, Any]:
        environ = super().get_environ()
        if isinstance(self.connection, ssl.SSLSocket):
            environ[_CERTIFICATE] = self.connection.getpeercert()
        return environ

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: a scrape is no news."""


class _Server(ThreadingWSGIServer):
    readers: Readers

    def finish_request(self, request: Any, client_address: Any) -> None:
        # In the request's own thread, so that a slow handshake keeps nobody else waiting.
        if self.readers.tls is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(_TIMEOUT_S)
        with self.readers.tls.wrap_socket(request, server_side=True) as encrypted:
            super().finish_request(encrypted, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if isinstance(error, OSError):  # TLS's own errors and time-outs, too
            _log.debug(
                "a connection for metrics from %s came to nothing: %s", client_address, error
            )
        else:
            _log.error("metrics could not be served", exc_info=error)


class _V6Server(_Server):
    address_family = socket.AF_INET6


class MetricsEndpoint:
    """Serves ``/metrics`` from a thread of its own, so that a busy loop can't hide."""

    def __init__(self, server: WSGIServer, thread: Thread, host: str) -> None:
        self._server = server
        self._thread = thread
        self.port = server.server_port
        self.address = at_port(host, self.port)

    @classmethod
    def start(cls, host: str, port: int, readers: Readers | None = None) -> MetricsEndpoint:
        """Starts it; ``port`` 0: the system chooses. Raises OSError when taken.

        ``readers``: who may read, and how; None: whoever can connect, and plain.
        """
        readers = readers or Readers()
        kind = _V6Server if family_of(host) is socket.AF_INET6 else _Server
        try:
            server = make_server(host, port, _application(readers), kind, _Handler)
        except OSError as exc:
            place = at_port(host, port)
            raise OSError(f"cannot serve metrics on {place}: {exc.strerror or exc}") from exc
        server.readers = readers
        if readers.tls is None:
            log_exposure("metrics are served", host, METRICS_HARM)
        thread = Thread(target=server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True)
        thread.start()
        return cls(server, thread, host)

    def stop(self) -> None:
        """Stops it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=2.0)


def _application(readers: Readers) -> Any:
    """The library's WSGI application, behind who may read."""
    page: Any = make_wsgi_app(metrics.REGISTRY)

    def serve(environ: dict[str, Any], start_response: Any) -> Any:
        authorization = environ.get("HTTP_AUTHORIZATION", "")
        refused = readers.refusal("GET /metrics", authorization, environ.get(_CERTIFICATE))
        if refused is None:
            return page(environ, start_response)
        headers = [("Content-Type", "text/plain"), ("WWW-Authenticate", "Bearer")]
        start_response("401 Unauthorized", headers)
        return [f"{refused.message}\n".encode()]

    return serve


async def heartbeat() -> None:
    """Measures for ever how late the event loop runs; blocking code shows here."""
    loop: Any = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await asyncio.sleep(_HEARTBEAT_S)
        metrics.EVENT_LOOP_LAG_SECONDS.set(max(0.0, loop.time() - before - _HEARTBEAT_S))
