"""Writes the answer to one request of a program: whole, or as a stream of server-sent events."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from gymmesh_agent.gateway.dialects import Dialect
from gymmesh_agent.gateway.request import GatewayRequest, Refusal
from gymmesh_agent.gateway.session import PendingAnswer

# A stream begins after so many seconds at the latest. An answer that comes sooner, or an error,
# needs no keep-alive, and an error then has an HTTP status.
_BEGIN_S: Final = 1.0
_PIECE_BYTES: Final = 1 << 16
_STREAM_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


class Writer:
    """The answer to a request; exactly one of its methods is called, once.

    Each raises ConnectionError if the program has disconnected, and TimeoutError if the program
    does not read.

    Args:
        write_s: seconds that the program may take to read a piece.
        keep_alive_s: seconds between two keep-alive messages.

    Attributes:
        response: what was written, for the server.
    """

    def __init__(
        self, request: web.BaseRequest, dialect: Dialect, write_s: float, keep_alive_s: float
    ) -> None:
        self.response = web.StreamResponse()
        self._request = request
        self._dialect = dialect
        self._write_s = write_s
        self._keep_alive_s = keep_alive_s
        # So that what was written has left this process when a write returns.
        if request.transport is not None:
            request.transport.set_write_buffer_limits(high=0)

    async def whole(self, body: bytes) -> str:
        """Answer with a document."""
        await self._send(web.Response(body=body, content_type="application/json"))
        return "beside"

    async def status(self, status: int) -> str:
        """Answer with only a status."""
        await self._send(web.Response(status=status))
        return "beside"

    async def refuse(self, refusal: Refusal, *, close: bool = False) -> str:
        """Answer with an error; returns its kind. `close`: also end the connection."""
        reply = self._dialect.write_refusal(refusal)
        response = web.Response(
            status=reply.status,
            body=reply.body,
            headers=reply.headers,
            content_type="application/json",
        )
        if close:
            response.force_close()
        await self._send(response)
        return refusal.kind.value

    async def answer(self, request: GatewayRequest, pending: PendingAnswer) -> str:
        """Wait for an answer and write it; returns how that ended."""
        if not request.stream:
            reply = await asyncio.shield(pending.reply)
            if isinstance(reply, Refusal):
                return await self.refuse(reply)
            await self.whole(self._dialect.write(request, reply))
            return "answered"
        await asyncio.wait([pending.reply], timeout=_BEGIN_S)
        early = pending.reply.result() if pending.reply.done() else None
        if isinstance(early, Refusal):
            return await self.refuse(early)
        return await self._stream(request, pending)

    def abort(self) -> None:
        """The program has disconnected, or does not read: end the connection."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _stream(self, request: GatewayRequest, pending: PendingAnswer) -> str:
        self.response = web.StreamResponse(headers=_STREAM_HEADERS)
        async with asyncio.timeout(self._write_s):
            await self.response.prepare(self._request)
        while not pending.reply.done():
            await self._write(self._dialect.keep_alive)
            await asyncio.wait([pending.reply], timeout=self._keep_alive_s)
        reply = pending.reply.result()
        if isinstance(reply, Refusal):
            await self._write(self._dialect.write_stream_refusal(reply))
            outcome = reply.kind.value
        else:
            piece = bytearray()
            for event in self._dialect.write_stream(request, reply):
                piece += event
                if len(piece) >= _PIECE_BYTES:
                    await self._write(bytes(piece))
                    piece.clear()
            await self._write(bytes(piece))
            outcome = "answered"
        async with asyncio.timeout(self._write_s):
            await self.response.write_eof()
        return outcome

    async def _send(self, response: web.Response) -> None:
        self.response = response
        async with asyncio.timeout(self._write_s):
            await response.prepare(self._request)
            await response.write_eof()

    async def _write(self, data: bytes) -> None:
        if data:
            async with asyncio.timeout(self._write_s):
                await self.response.write(data)
