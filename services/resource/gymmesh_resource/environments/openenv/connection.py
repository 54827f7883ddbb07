"""One WebSocket of an OpenEnv server, which is an environment of its own.

Invariant: a request is answered before the next is sent. A connection that closed, sent something
that is no answer, or whose request was given up is lost for good: an answer that came late would
otherwise be taken for that of the next request.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import aiohttp

from gymmesh_responses import CodecError, dumps, loads

# A connection may take this long to open, and this long to close.
_CONNECT_S: Final = 10.0
_CLOSE_S: Final = 2.0
# Larger messages are parsed in a thread, so that they hold up no other session.
_PARSED_AT_ONCE: Final = 262_144


class SocketLost(Exception):
    """The connection cannot be used any more; one clause says why."""


class HandshakeRefused(SocketLost):
    """The server answered a status in place of a WebSocket at a path."""

    def __init__(self, status: int, path: str) -> None:
        self.status, self.path = status, path
        super().__init__(f"it answered {status} at {path}")


class ServerRefused(Exception):
    """The server's answer is an error: its code, its message, and the problems of an action."""

    def __init__(self, code: str, message: str, problems: list[Any]) -> None:
        self.code, self.message, self.problems = code, message, problems
        super().__init__(f"{code}: {message}")


class OpenEnvConnection:
    """A connection that is open. To be made by `connect`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._why_lost = ""
        self._refusal: ServerRefused | None = None
        self._waiting: asyncio.Future[dict[str, Any]] | None = None
        # Reads all the time: pings are answered while the model thinks.
        self._reader = asyncio.create_task(self._read())

    @property
    def lost(self) -> bool:
        """Whether it cannot be used any more."""
        return bool(self._why_lost)

    async def ask(self, kind: str, data: Any, expected: str) -> dict[str, Any]:
        """The data of the server's answer, which must be of the type `expected`.

        Takes as long as the server does: bound it outside. Raises SocketLost, ServerRefused.
        """
        if self._waiting is not None:
            raise self._lost("two requests at a time")
        self._check()
        request = {"type": kind} if data is None else {"type": kind, "data": data}
        waiting: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting = waiting
        try:
            await self._send(dumps(request).decode())
            answer = await waiting
        except asyncio.CancelledError:
            self._lose("a request timed out and was abandoned")
            raise
        finally:
            self._waiting = None
            if waiting.done() and not waiting.cancelled():
                waiting.exception()  # seen, where sending failed before it was awaited
        content = answer.get("data")
        if not isinstance(content, dict):
            raise self._lost("it sent an answer without data")
        if answer.get("type") == "error":
            raise _refusal(content)
        if answer.get("type") != expected:
            raise self._lost(
                f"it answered a message {kind!r} with {str(answer.get('type'))[:50]!r}"
            )
        return content

    async def close(self) -> None:
        """End the session at the server, within a few seconds."""
        if not self.lost:
            try:
                async with asyncio.timeout(_CLOSE_S):
                    await self._socket.send_str('{"type":"close"}')
            except (TimeoutError, aiohttp.ClientError, OSError):
                pass  # closed below
        self._lose("it is closed")
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._socket.close()

    async def _send(self, text: str) -> None:
        try:
            await self._socket.send_str(text)
        except (aiohttp.ClientError, OSError) as error:
            # A server without room says so, and closes before it is asked.
            await asyncio.wait({self._reader}, timeout=_CLOSE_S)
            self._check()
            raise SocketLost(type(error).__name__) from error

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        if self._why_lost:
            raise SocketLost(self._why_lost)

    def _lost(self, why: str) -> SocketLost:
        self._lose(why)
        return SocketLost(self._why_lost)

    def _lose(self, why: str) -> None:
        self._why_lost = self._why_lost or why
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(self._refusal or SocketLost(self._why_lost))

    async def _read(self) -> None:
        try:
            while not self.lost:
                await self._take(await self._socket.receive())
        except SocketLost as error:
            self._lose(str(error))
            # The server's session ends, and makes room for another.
            await self._socket.close()
        finally:
            self._lose("its reader ended")

    async def _take(self, message: aiohttp.WSMessage) -> None:
        """Give a message to the request that waits for it."""
        if message.type is aiohttp.WSMsgType.ERROR:
            raise SocketLost(f"{type(message.data).__name__}: {message.data}"[:200])
        if message.type is not aiohttp.WSMsgType.TEXT:
            code = self._socket.close_code
            raise SocketLost(f"it closed the connection{f' (code {code})' if code else ''}")
        answer = await _parsed(message.data)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(answer)
            return
        if answer.get("type") == "error" and isinstance(answer.get("data"), dict):
            self._refusal = _refusal(answer["data"])
        raise SocketLost("it sent an unexpected message")


async def connect(
    http: aiohttp.ClientSession, url: str, *, max_bytes: int, path: str = "/ws"
) -> OpenEnvConnection:
    """A connection to the server with this root URL. Raises SocketLost, HandshakeRefused."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            socket = await http.ws_connect(
                url + path,
                max_msg_size=max_bytes,
                timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_S),
            )
    except TimeoutError:
        raise SocketLost(f"it accepted no connection within {_CONNECT_S:g} s") from None
    except aiohttp.WSServerHandshakeError as error:
        raise HandshakeRefused(error.status, path) from error
    except (aiohttp.ClientError, OSError) as error:
        raise SocketLost(f"{type(error).__name__}: {error}"[:300]) from error
    return OpenEnvConnection(socket)


def _refusal(content: dict[str, Any]) -> ServerRefused:
    problems = content.get("errors")
    return ServerRefused(
        str(content.get("code"))[:50],
        str(content.get("message"))[:2000],
        problems if isinstance(problems, list) else [],
    )


async def _parsed(text: str) -> dict[str, Any]:
    try:
        document = (
            loads(text) if len(text) < _PARSED_AT_ONCE else await asyncio.to_thread(loads, text)
        )
    except CodecError as error:
        raise SocketLost(f"it sent data that is not JSON: {error}"[:300]) from None
    if not isinstance(document, dict):
        raise SocketLost("it sent JSON that is not an object")
    return document
