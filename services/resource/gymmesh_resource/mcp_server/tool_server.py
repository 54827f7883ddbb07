"""An MCP server over an environment's sessions.

Each session has its own bearer tokens. A client with such a token sees the session's tools and
calls them as the session's agent would. A client without a token gets HTTP 401 and no information.
The transport is streamable HTTP without MCP sessions: the token identifies the session.

The client that opened the session, and so knows its id, is its owner: with the id as the token,
`POST /session/tokens` mints a token, `GET /session` says whether the episode is over, and
`GET /session/items` returns the calls so far, as Responses items. Each of these requests counts as
activity, so the session is not closed as idle.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import MutableMapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from mcp import MCPError
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    INTERNAL_ERROR,
    CallToolRequestParams,
    CallToolResult,
    ImageContent,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)
from starlette.requests import Request
from starlette.responses import Response

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.protocols import (
    EnvironmentFacade,
    OfferedService,
    ShownImage,
    ShownPart,
    parts_of_reply,
    schema_of,
    words_of,
)
from gymmesh_resource.serving import OpenSession
from gymmesh_responses import JsonValue, dumps, items_to_list
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.sizes import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from starlette.types import Receive, Scope, Send

_SESSION = "gymmesh.session"
_OWNERS = "/session"
# As large as any message, and how long its caller may take to send it.
_MOST_BODY = MAX_MESSAGE_BYTES
_BODY_S = 60.0
_TOKEN_BYTES = 32


class ToolServer:
    """An ASGI application for one resource service: `async with ToolServer(service) as app`.

    Run it in the event loop of the service. The service does not need to know about it.
    """

    def __init__(self, service: OfferedService) -> None:
        self._service = service
        self._facade = EnvironmentFacade(service)
        # By hash: neither a dump of memory nor the time that a look-up takes gives a token away.
        self._tokens: WeakValueDictionary[bytes, OpenSession[Any]] = WeakValueDictionary()
        self._running = AsyncExitStack()
        server: Server[Any] = Server(
            service.name,
            version=service.environment.version,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        self._manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)

    def mint(self, session_id: str) -> str:
        """A token for an open session, valid until the session closes. Raises SESSION_NOT_FOUND."""
        opened = self._service.sessions.get(session_id)
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._tokens[_hash(token)] = opened
        return token

    def revoke(self, token: str) -> None:
        """Revoke a token."""
        self._tokens.pop(_hash(token), None)

    async def __aenter__(self) -> ToolServer:
        """Start serving; a server starts once."""
        await self._running.enter_async_context(self._manager.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop serving; calls under way are given up."""
        await self._running.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request, at whatever path."""
        if scope["type"] != "http":
            raise ValueError(f"a ToolServer handles ASGI scopes of type http, not {scope['type']}")
        request = Request(scope, receive)
        if scope["path"].startswith(_OWNERS):
            answer = self._answer_owner(request)
        elif (opened := self._of_token(_bearer(request))) is None:
            answer = _refusal(401, "www-authenticate", "Bearer")
        elif request.method != "POST":
            # The other methods are for streams and sessions of the transport, and there are none:
            # a stream would keep the session from ever being idle.
            answer = _refusal(405, "allow", "POST")
        else:
            scope[_SESSION] = opened.session.id
            with opened:  # a request over MCP uses the session: it is not idle meanwhile
                await self._answer_mcp(scope, receive, send)
            return
        await answer(scope, receive, send)

    async def _answer_mcp(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(_BODY_S):
                body = await _body(receive)
        except TimeoutError:
            await _refusal(408, "connection", "close")(scope, receive, send)
            return
        if body is None:
            await _refusal(413, "connection", "close")(scope, receive, send)
            return
        await self._manager.handle_request(scope, _replayed(body, receive), send)

    def _of_token(self, token: str) -> OpenSession[Any] | None:
        """The session that a token stands for, if that is open."""
        opened = self._tokens.get(_hash(token))
        is_open = opened is not None and self._service.sessions.has(opened.session.id)
        return opened if is_open else None

    def _answer_owner(self, request: Request) -> Response:
        session_id = _bearer(request)
        opened = self._service.sessions.find(session_id)
        if opened is None:
            return _refusal(401, "www-authenticate", "Bearer")
        with opened:
            pass  # an owner that asks is there: the session is not idle
        document: JsonValue
        match f"{request.method} {request.scope['path'].removeprefix(_OWNERS)}":
            case "POST /tokens":
                document = {"token": self.mint(session_id)}
            case "GET ":
                document = {"done": opened.session.done}
            case "GET /items":
                # The calls with their answers, in the order in which they ended.
                document = {"items": items_to_list(self._facade.attach(opened).items)}
            case _:
                return _refusal(404, "cache-control", "no-store")
        headers = {"cache-control": "no-store"}
        return Response(dumps(document), headers=headers, media_type="application/json")

    async def _list_tools(
        self, context: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        opened = self._service.sessions.get(_session_of(context))
        functions = self._facade.attach(opened).tools
        return ListToolsResult(tools=[_tool(function) for function in functions])

    async def _call_tool(
        self, context: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult:
        call_id = f"mcp_{secrets.token_hex(12)}"
        try:
            opened = self._service.sessions.get(_session_of(context))
            session = self._facade.attach(opened)
            reply = await session.call(params.name, dumps(params.arguments or {}), call_id)
        except MeshError as error:
            # An error of the protocol, not of the tool: it is no answer to be shown to a model.
            data = {"reason": error.reason_name}
            raise MCPError(INTERNAL_ERROR, words_of(error), data) from None
        return CallToolResult(
            content=[_block(part) for part in parts_of_reply(reply)],
            is_error=reply.outcome != rollout_pb2.TOOL_OUTCOME_OK,
            _meta={"gymmesh/done": True} if reply.done else None,
        )


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


async def _body(receive: Receive) -> bytes | None:
    """A request's body, which the library would read without a bound; None: it is too large."""
    body = bytearray()
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)  # of a caller that is gone there is none
        if len(body) > _MOST_BODY:
            return None
    return bytes(body)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Gives the body that was read already, then what comes after it."""
    first = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def next_message() -> MutableMapping[str, Any]:
        return next(first, None) or await receive()

    return next_message


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _refusal(status: int, header: str, value: str) -> Response:
    return Response(status_code=status, headers={header: value})


def _session_of(context: ServerRequestContext[Any]) -> str:
    if context.request is None:
        raise RuntimeError("the MCP request has no HTTP request")
    session_id: str = context.request.scope[_SESSION]
    return session_id


def _tool(function: responses_pb2.FunctionTool) -> Tool:
    return Tool(
        name=function.name,
        description=function.description or None,
        input_schema=schema_of(function),
    )


def _block(part: ShownPart) -> TextContent | ImageContent:
    if isinstance(part, ShownImage):
        return ImageContent(data=part.data, mime_type=part.media_type)
    return TextContent(text=part)
