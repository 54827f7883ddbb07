"""The Prometheus endpoint of a process, and the heartbeat of its event loop."""

from __future__ import annotations

import asyncio
import socket
from threading import Thread
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from gymmesh_runtime import metrics
from gymmesh_runtime.listening import METRICS_HARM, at_port, family_of, log_exposure

_HEARTBEAT_S: Final = 1.0
# How long stopping may take. The library's own start_http_server polls every half second, which
# a mesh of processes, stopped one after the other, adds up.
_POLL_S: Final = 0.05


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: a scrape is no news."""


class _V6Server(ThreadingWSGIServer):
    address_family = socket.AF_INET6


class MetricsEndpoint:
    """Serves ``/metrics`` from a thread of its own, so that a busy loop can't hide."""

    def __init__(self, server: WSGIServer, thread: Thread, host: str) -> None:
        self._server = server
        self._thread = thread
        self.port = server.server_port
        self.address = at_port(host, self.port)

    @classmethod
    def start(cls, host: str, port: int) -> MetricsEndpoint:
        """Starts it; ``port`` 0: the system chooses. Raises OSError when taken."""
        kind = _V6Server if family_of(host) is socket.AF_INET6 else ThreadingWSGIServer
        try:
            server = make_server(host, port, make_wsgi_app(metrics.REGISTRY), kind, _Silent)
        except OSError as exc:
            place = at_port(host, port)
            raise OSError(f"cannot serve metrics on {place}: {exc.strerror or exc}") from exc
        log_exposure("metrics are served", host, METRICS_HARM)
        thread = Thread(target=server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True)
        thread.start()
        return cls(server, thread, host)

    def stop(self) -> None:
        """Stops it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=2.0)


async def heartbeat() -> None:
    """Measures for ever how late the event loop runs; blocking code shows here."""
    loop: Any = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await asyncio.sleep(_HEARTBEAT_S)
        metrics.EVENT_LOOP_LAG_SECONDS.set(max(0.0, loop.time() - before - _HEARTBEAT_S))
