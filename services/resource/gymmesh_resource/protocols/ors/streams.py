"""Server-sent events of ORS. A call continues if its stream breaks, and a client can resume it."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from aiohttp import web

from gymmesh_resource.protocols.session import words_of
from gymmesh_responses import JsonValue, dumps
from gymmesh_runtime.errors import MeshError

# Characters of a chunk; clients read lines of up to 128 KiB.
_CHUNK: Final = 4096
# Clients take a stream for dead after 30 s.
_PING_S: Final = 10.0
_WRITE_S: Final = 60.0
# Calls of a session whose results are kept for a client that was cut off.
_KEPT: Final = 16
_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


class CallStreams:
    """The calls of one session, by the id that their streams begin with."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, asyncio.Future[dict[str, JsonValue]]] = OrderedDict()

    def begin(self, call: Callable[[str], Awaitable[dict[str, JsonValue]]]) -> str:
        """Start a call that receives its own id; returns the id."""
        call_id = secrets.token_hex(12)
        running = asyncio.ensure_future(call(call_id))
        # So that one that nobody comes back for is no unretrieved error.
        running.add_done_callback(_look_at)
        self._calls[call_id] = running
        while len(self._calls) > _KEPT and next(iter(self._calls.values())).done():
            self._calls.popitem(last=False)
        return call_id

    def find(self, call_id: str) -> asyncio.Future[dict[str, JsonValue]] | None:
        """A call that was started, or None."""
        return self._calls.get(call_id)

    def cancel(self) -> None:
        """Cancel the calls that run."""
        for running in self._calls.values():
            running.cancel()


async def stream_call(
    request: web.Request, call_id: str, running: asyncio.Future[dict[str, JsonValue]] | None
) -> web.StreamResponse:
    """Stream a call's result, or what it failed with. Raises ConnectionError, TimeoutError."""
    stream = await _begin(request)
    if running is None:
        await _send(stream, _event("error", "unknown task_id"))
        return await _end(stream)
    await _send(stream, _event("task_id", call_id))
    while not running.done():
        await asyncio.wait((running,), timeout=_PING_S)
        if not running.done():
            await _send(stream, b": ping\n\n")
    try:
        for piece in result_events(running.result()):
            await _send(stream, piece)
    except asyncio.CancelledError:
        if not running.cancelled():
            raise
        await _send(stream, _event("error", "the session was closed"))
    except MeshError as error:
        words = f"{error.reason_name}: {words_of(error)}"
        await _send(stream, _event("error", " ".join(words.split())))
    return await _end(stream)


async def stream_id(request: web.Request, session_id: str) -> web.StreamResponse:
    """Stream the id of a new session."""
    stream = await _begin(request)
    await _send(stream, _event("task_id", session_id) + _event("end", ""))
    return await _end(stream)


def result_events(result: dict[str, JsonValue]) -> Iterator[bytes]:
    """A result in chunks, the last as the event `end`. Pure.

    No chunk begins with a space, which clients would strip.
    """
    text = dumps(result).decode("utf-8", "replace")
    start = 0
    while start < len(text):
        end = start + _CHUNK
        while end < len(text) and text[end] == " ":
            end += 1
        yield _event("chunk" if end < len(text) else "end", text[start:end])
        start = end


def _event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode()


def _look_at(running: asyncio.Future[dict[str, JsonValue]]) -> None:
    if not running.cancelled():
        running.exception()


async def _begin(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers=_HEADERS)
    async with asyncio.timeout(_WRITE_S):
        await stream.prepare(request)
    return stream


async def _send(stream: web.StreamResponse, piece: bytes) -> None:
    async with asyncio.timeout(_WRITE_S):
        await stream.write(piece)


async def _end(stream: web.StreamResponse) -> web.StreamResponse:
    async with asyncio.timeout(_WRITE_S):
        await stream.write_eof()
    return stream
