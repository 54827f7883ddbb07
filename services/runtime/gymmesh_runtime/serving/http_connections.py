"""The connections of a small HTTP server over aiohttp, with limits on time, number and log lines.

aiohttp itself waits for ever for a request that does not arrive, accepts any number of connections,
and logs a traceback for each request that is not HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    # A third of what a service's process imports, and most serve nothing over HTTP.
    from aiohttp import web

_MOST: Final = 256


class HttpConnections:
    """Creates the protocols for `loop.create_server`.

    Args:
        runner: a runner that was set up.
        seconds: after this time a connection accepts no new request; after twice the time it
            is cut.
        most: the most connections at a time; further connections are closed at once.
    """

    def __init__(self, runner: web.AppRunner, seconds: float, most: int = _MOST) -> None:
        self._runner = runner
        self._seconds = seconds
        self._most = most
        self._open: list[Any] = []

    def __call__(self) -> asyncio.Protocol:
        self._open = [one for one in self._open if one.transport is not None]
        if len(self._open) >= self._most or self._runner.server is None:
            return _Closed()
        connection = self._runner.server()
        loop = asyncio.get_running_loop()
        # A connection has its transport from the loop's next turn on.
        loop.call_soon(self._open.append, connection)
        loop.call_later(self._seconds, connection.close)
        loop.call_later(2 * self._seconds, connection.force_close)
        return connection


class _Closed(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def requests_log(name: str) -> logging.Logger:
    """A logger for aiohttp that omits tracebacks of requests that are not HTTP, and of readers that
    hang up before their answer.
    """
    log = logging.getLogger(name)
    log.addFilter(_is_news)
    return log


def _is_news(record: logging.LogRecord) -> bool:
    from aiohttp.http import HttpProcessingError

    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | ConnectionError)
