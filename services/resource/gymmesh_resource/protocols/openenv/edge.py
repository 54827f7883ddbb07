"""OpenEnv's routes: `/ws`, `/mcp`, and HTTP calls, each of which opens its own session.

A socket is a session: it ends with the socket, and cancels what runs in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import WSCloseCode, WSMsgType, web

from gymmesh_resource.protocols.facade import EnvironmentFacade
from gymmesh_resource.protocols.openenv.documents import (
    error_document,
    failure,
    metadata,
    openapi,
    schemas,
    state_document,
)
from gymmesh_resource.protocols.openenv.episode import OpenEnvSession, TaskChooser
from gymmesh_resource.protocols.openenv.json_rpc import JsonRpc
from gymmesh_resource.protocols.replies import (
    document,
    object_field,
    object_of,
    read_body,
    read_object,
)
from gymmesh_resource.protocols.tasks import TaskTable
from gymmesh_responses import JsonValue, dumps
from gymmesh_runtime.errors import MeshError, unforeseen

# A client that answers no ping for so long is gone; one that reads nothing, too.
_HEARTBEAT_S: Final = 30.0
_WRITE_S: Final = 60.0
_CLOSE_S: Final = 5.0
_ENDED: Final = frozenset((WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR))
_Answer = Callable[[str | bytes], Awaitable[dict[str, JsonValue] | None]]


class OpenEnvEdge:
    """Routes over the façade.

    `idle_s`: a socket without a message for so many seconds is closed; 0: never. `most`: sessions
    that requests may open; 0: no limit of the environment's. `body_bytes`: of one message.
    """

    def __init__(
        self,
        facade: EnvironmentFacade,
        tasks: TaskTable,
        *,
        idle_s: float,
        most: int,
        body_bytes: int,
    ) -> None:
        self._facade = facade
        self._chooser = TaskChooser(tasks)
        self._rpc = JsonRpc(facade, self._chooser, idle_s=idle_s, most=most)
        self._idle_s = idle_s
        self._body_bytes = body_bytes
        self._sockets: set[web.WebSocketResponse] = set()
        self._paths: dict[str, list[str]] = {}

    def problem(self) -> str:
        """OpenEnv can serve every environment."""
        return ""

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Adds its routes."""
        router.add_get("/ws", self._socket)
        router.add_get("/mcp", self._mcp_socket)
        router.add_post("/mcp", self._mcp)
        router.add_post("/reset", self._reset)
        router.add_post("/step", self._step)
        router.add_get("/state", self._state)
        router.add_get("/schema", self._schema)
        router.add_get("/metadata", self._metadata)
        router.add_get("/openapi.json", self._openapi)
        for route in router.routes():
            if route.resource is not None:
                self._paths.setdefault(route.resource.canonical, []).append(route.method)

    async def close(self) -> None:
        """Close all sockets, and with them their sessions."""
        bye = "the server is shutting down"
        await asyncio.gather(
            *(one.close(code=WSCloseCode.GOING_AWAY, message=bye.encode()) for one in self._sockets)
        )
        await self._rpc.close()

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        """One client's session, its own or one that `/mcp` opened."""
        session_id = request.query.get("session_id", "")
        socket = await self._open(request)
        if not session_id:
            session = OpenEnvSession(self._facade, self._chooser)
            try:
                return await self._converse(socket, lambda text: self._message(session, text))
            finally:
                await session.close()
        found = self._rpc.find(session_id)
        if found is None or found.attached:
            what = "is unknown" if found is None else "already has a WebSocket"
            await self._send(socket, failure(f"session_id {what}", "SESSION_ERROR"))
            await socket.close()
            return socket
        found.attached = True
        try:
            return await self._converse(socket, lambda text: self._message(found, text))
        finally:
            await self._rpc.detach(session_id, found)

    async def _mcp_socket(self, request: web.Request) -> web.StreamResponse:
        """JSON-RPC over a socket, in a session of its own."""
        session = OpenEnvSession(self._facade, self._chooser)

        async def answer(text: str | bytes) -> dict[str, JsonValue]:
            return await self._rpc.answer(_as_bytes(text), session)

        try:
            return await self._converse(await self._open(request), answer)
        finally:
            await session.close()

    async def _open(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(
            heartbeat=_HEARTBEAT_S, max_msg_size=self._body_bytes, timeout=_CLOSE_S, compress=False
        )
        await socket.prepare(request)
        return socket

    async def _converse(
        self, socket: web.WebSocketResponse, answer: _Answer
    ) -> web.WebSocketResponse:
        """Answer messages one after another until the client or the answer ends it."""
        self._sockets.add(socket)
        receiving = asyncio.ensure_future(socket.receive())
        answering: asyncio.Future[dict[str, JsonValue] | None] | None = None
        try:
            while True:
                idle = self._idle_s or None
                await asyncio.wait((receiving,), timeout=idle)
                if not receiving.done():
                    text = f"no message arrived for {self._idle_s:g} s"
                    await self._send(socket, failure(text, "SESSION_ERROR"))
                    break
                message = receiving.result()
                if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                    break
                # Reading goes on, so that a client that leaves cancels what it asked for.
                receiving = asyncio.ensure_future(socket.receive())
                answering = asyncio.ensure_future(answer(message.data))
                await asyncio.wait((receiving, answering), return_when=asyncio.FIRST_COMPLETED)
                if not answering.done():
                    if receiving.result().type in _ENDED:
                        break
                    await asyncio.wait((answering,))
                reply = answering.result()
                if reply is None:
                    break
                await self._send(socket, reply)
        except (ConnectionError, TimeoutError):
            pass
        finally:
            self._sockets.discard(socket)
            left = [one for one in (receiving, answering) if one is not None]
            for one in left:
                one.cancel()
            await asyncio.wait(left, timeout=_CLOSE_S)
            await socket.close()
        return socket

    async def _message(
        self, session: OpenEnvSession, text: str | bytes
    ) -> dict[str, JsonValue] | None:
        """The answer to a message of `/ws`; None: the client takes its leave."""
        try:
            message = object_of(text)
        except MeshError as error:
            return failure(error.message, "INVALID_JSON")
        kind = message.get("type")
        try:
            data = object_field(message, "data")
            match kind:
                case "reset":
                    return {"type": "observation", "data": await session.reset(data)}
                case "step":
                    return {"type": "observation", "data": await session.step(data)}
                case "state":
                    return {"type": "state", "data": session.state()}
                case "mcp":
                    return {"type": "mcp", "data": await self._rpc.answer(data, session)}
                case "close":
                    return None
        except MeshError as error:
            return error_document(error)
        except Exception as error:
            return error_document(unforeseen(error, f"the message {kind!r:.40}"))
        return failure(f"Unknown message type: {kind!r:.100}", "UNKNOWN_TYPE")

    async def _send(self, socket: web.WebSocketResponse, reply: dict[str, JsonValue]) -> None:
        async with asyncio.timeout(_WRITE_S):
            await socket.send_str(dumps(reply).decode("utf-8", "replace"))

    async def _mcp(self, request: web.Request) -> web.Response:
        return document(await self._rpc.answer(await read_body(request)))

    async def _reset(self, request: web.Request) -> web.Response:
        return await self._once(await read_object(request), None)

    async def _step(self, request: web.Request) -> web.Response:
        body = await read_object(request)
        return await self._once(body, object_field(body, "action"))

    async def _once(self, data: dict[str, Any], action: dict[str, Any] | None) -> web.Response:
        """A reset, or a reset and a step, in an environment of this call's own."""
        session = OpenEnvSession(self._facade, self._chooser)
        try:
            first = await session.reset(data)
            return document(first if action is None else await session.step(action))
        finally:
            await session.close()

    async def _state(self, request: web.Request) -> web.Response:
        return document(state_document(None, None))

    async def _schema(self, request: web.Request) -> web.Response:
        tools = self._facade.tools
        return document(schemas([*tools, self._facade.answer_tool(tools)]))

    async def _metadata(self, request: web.Request) -> web.Response:
        return document(metadata(self._facade.about))

    async def _openapi(self, request: web.Request) -> web.Response:
        return document(openapi(self._facade.about, self._paths))


def _as_bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8", "replace") if isinstance(text, str) else text
