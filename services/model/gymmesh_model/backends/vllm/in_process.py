"""An endpoint in this process: an ASGI application that is called without a connection.

The application receives the same messages as from an HTTP server, so it behaves in the same way. A
caller that leaves a streamed answer before its end is reported to the application as a client that
disconnected. Format: the ASGI specification 3.0, HTTP connection scope.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from multidict import CIMultiDict

from gymmesh_model.transport import (
    MAX_BODY,
    Body,
    ConnectionLost,
    HttpAnswer,
    StreamedAnswer,
    TooLarge,
)
from gymmesh_runtime.timers import cancel_and_wait

AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

# How long an application may take to notice that its client has gone.
_LEAVE_SECONDS: Final = 5.0
_CUT_SHORT: Final = "the call ended before the answer was complete"


class _Exchange:
    """One request, and its answer while the answer arrives."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._begun = asyncio.Event()
        self.gone = asyncio.Event()  # the client is
        self._whole = False
        self.status = 0
        self.headers: Mapping[str, str] = {}

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def receive(self) -> AsgiMessage:
        """The next message for the application: the body, or when the exchange is over, the
        client's disconnection.
        """
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = CIMultiDict(
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in message.get("headers", ())
            )
            self._begun.set()
        elif message["type"] == "http.response.body":
            if message.get("body"):
                self._pieces.put_nowait(bytes(message["body"]))
            if not message.get("more_body"):
                self._whole = True
                self._pieces.put_nowait(None)

    async def begun(self) -> None:
        """Returns when the head has arrived. Raises ConnectionLost if no head will arrive."""
        await self._begun.wait()
        if not self.status:
            raise ConnectionLost(_CUT_SHORT)

    def over(self) -> None:
        """Marks the exchange as over: the application has returned or failed."""
        self._begun.set()
        if not self._whole:
            self._pieces.put_nowait(None)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The pieces of the body as they arrive. Can be read once. Raises TransportError."""
        size = 0
        while (piece := await self._pieces.get()) is not None:
            size += len(piece)
            if size > MAX_BODY:
                raise TooLarge(f"the response is larger than {MAX_BODY} bytes")
            yield piece
        if not self._whole:
            raise ConnectionLost(_CUT_SHORT)

    async def read(self) -> bytes:
        """The rest of the body. Raises TransportError."""
        return b"".join([piece async for piece in self.pieces()])


class InProcessTransport:
    """Calls an application as a Transport. headers: sent with every request.

    Only the paths of the URLs are used.
    """

    def __init__(self, application: Application, headers: Mapping[str, str]) -> None:
        self._application = application
        self._headers = dict(headers)
        self._running: set[asyncio.Task[None]] = set()

    async def post(self, url: str, body: Body, headers: Mapping[str, str] | None) -> HttpAnswer:
        sent = body if isinstance(body, bytes) else body()
        async with self.stream(url, sent, headers) as answer:
            return HttpAnswer(answer.status, answer.headers, await answer.read())

    async def get(self, url: str) -> HttpAnswer:
        async with self._call("GET", url, b"", None) as answer:
            return HttpAnswer(answer.status, answer.headers, await answer.read())

    @asynccontextmanager
    async def stream(
        self, url: str, body: bytes, headers: Mapping[str, str] | None
    ) -> AsyncIterator[StreamedAnswer]:
        async with self._call("POST", url, body, headers) as answer:
            yield answer

    async def close(self) -> None:
        await cancel_and_wait(*self._running)

    @asynccontextmanager
    async def _call(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str] | None
    ) -> AsyncIterator[_Exchange]:
        exchange = _Exchange(body)
        scope = _scope(method, url, {**self._headers, **(headers or {})})
        # In a task of its own, in the caller's context.
        task = asyncio.ensure_future(self._run(scope, exchange))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            await exchange.begun()
            yield exchange
        finally:
            exchange.gone.set()
            if not task.done():
                try:
                    await asyncio.wait([task], timeout=_LEAVE_SECONDS)
                finally:
                    task.cancel()

    async def _run(self, scope: MutableMapping[str, Any], exchange: _Exchange) -> None:
        try:
            await self._application(scope, exchange.receive, exchange.send)
        except Exception:
            # Frameworks answer, then raise for their server's log; `begun` raises without one.
            return
        finally:
            exchange.over()


def _scope(method: str, url: str, headers: Mapping[str, str]) -> MutableMapping[str, Any]:
    path = urlsplit(url).path
    raw = path.encode()
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": raw,
        "root_path": "",
        "query_string": b"",
        "headers": [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in headers.items()
        ],
        "client": None,
        "server": None,
    }
