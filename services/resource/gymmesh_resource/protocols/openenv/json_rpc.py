"""The JSON-RPC methods of OpenEnv's `/mcp`: tools of a session, and sessions without a socket."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final

from gymmesh_resource.protocols.facade import EnvironmentFacade
from gymmesh_resource.protocols.openenv.documents import mcp_tools, tool_result
from gymmesh_resource.protocols.openenv.episode import OpenEnvSession, TaskChooser
from gymmesh_resource.protocols.replies import object_of
from gymmesh_resource.protocols.session import words_of
from gymmesh_responses import JsonValue
from gymmesh_runtime.errors import MeshError

_PARSE_ERROR: Final = -32700
_INVALID_REQUEST: Final = -32600
_NO_METHOD: Final = -32601
_INVALID_PARAMS: Final = -32602
_INTERNAL: Final = -32603
_SERVER: Final = -32000
# Where the environment has no limit of its own.
_MOST_SESSIONS: Final = 10_000


class _RpcError(Exception):
    def __init__(self, code: int, message: str, data: JsonValue = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class JsonRpc:
    """Answers JSON-RPC requests; holds the sessions that were opened by one.

    `idle_s`: after so many seconds without a use such a session is closed; 0: never. `most`: how
    many there may be; 0: as many as any environment may have.
    """

    def __init__(
        self, facade: EnvironmentFacade, chooser: TaskChooser, *, idle_s: float, most: int
    ) -> None:
        self._facade = facade
        self._chooser = chooser
        self._idle_s = idle_s
        self._most = most or _MOST_SESSIONS
        self._sessions: dict[str, OpenEnvSession] = {}

    def find(self, session_id: str) -> OpenEnvSession | None:
        """A session that was opened by a request."""
        return self._sessions.get(session_id)

    async def detach(self, session_id: str, session: OpenEnvSession) -> None:
        """A socket leaves a session; closes it where that was asked for meanwhile."""
        session.attached = False
        if session.closing:
            self._sessions.pop(session_id, None)
            await session.close()

    async def close(self) -> None:
        """Close all sessions."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    async def answer(
        self, body: bytes | Mapping[str, Any], session: OpenEnvSession | None = None
    ) -> dict[str, JsonValue]:
        """The answer to one request. `session`: that of the socket on which it came."""
        request_id: JsonValue = None
        try:
            request = object_of(body) if isinstance(body, bytes) else body
            request_id = request.get("id")
            method, params = request.get("method"), request.get("params", {})
            if request.get("jsonrpc") != "2.0" or not isinstance(method, str):
                raise _RpcError(
                    _INVALID_REQUEST,
                    "Invalid request: send a JSON object with 'jsonrpc': '2.0' and 'method'",
                )
            if not isinstance(params, dict):
                raise _RpcError(_INVALID_PARAMS, "'params' must be an object")
            result = await self._call(method, params, session)
            return {"jsonrpc": "2.0", "id": request_id, "result": result}
        except _RpcError as error:
            return _error(request_id, error.code, str(error), error.data)
        except MeshError as error:
            code = _INTERNAL if request_id is not None or session else _PARSE_ERROR
            data: JsonValue = {"reason": error.reason_name}
            return _error(request_id, code, f"{error.reason_name}: {words_of(error)}", data)

    async def _call(
        self, method: str, params: dict[str, Any], session: OpenEnvSession | None
    ) -> JsonValue:
        match method:
            case "openenv/session/create":
                return {"session_id": await self._create()}
            case "openenv/session/close":
                return await self._close(params)
            case "tools/list":
                found = session or self._named(params, needed=False)
                return mcp_tools((found or OpenEnvSession(self._facade, self._chooser)).tools())
            case "tools/call":
                found = session or self._named(params, needed=True)
                name, arguments = params.get("name"), params.get("arguments") or {}
                if not isinstance(name, str) or not isinstance(arguments, dict) or found is None:
                    raise _RpcError(_INVALID_PARAMS, "tools/call needs 'name' and 'arguments'")
                return tool_result(await found.call(name, arguments))
        raise _RpcError(_NO_METHOD, f"Method not found: {method:.100}")

    def _named(self, params: Mapping[str, Any], *, needed: bool) -> OpenEnvSession | None:
        session_id = params.get("session_id")
        if session_id is None and not needed:
            return None
        found = self._sessions.get(str(session_id))
        if found is None:
            raise _RpcError(_INVALID_PARAMS, "Unknown session_id. Create a session first")
        return found

    async def _create(self) -> str:
        await self._drop_idle()
        if len(self._sessions) >= self._most:
            counts: JsonValue = {
                "active_sessions": len(self._sessions),
                "max_sessions": self._most,
            }
            raise _RpcError(
                _SERVER,
                f"The server has reached its maximum of sessions ({self._most}). Close a session "
                "first",
                counts,
            )
        session_id = secrets.token_hex(16)
        self._sessions[session_id] = OpenEnvSession(self._facade, self._chooser)
        return session_id

    async def _close(self, params: Mapping[str, Any]) -> JsonValue:
        session = self._named(params, needed=True)
        session_id = str(params["session_id"])
        assert session is not None
        if session.attached:
            session.closing = True
            return {"session_id": session_id, "closed": False, "closing": True}
        del self._sessions[session_id]
        await session.close()
        return {"session_id": session_id, "closed": True}

    async def _drop_idle(self) -> None:
        if not self._idle_s:
            return
        idle = [key for key, one in self._sessions.items() if one.idle_s() > self._idle_s]
        for key in idle:
            await self._sessions.pop(key).close()


def _error(request_id: JsonValue, code: int, message: str, data: JsonValue) -> dict[str, JsonValue]:
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": code, "message": message, "data": data},
    }
