"""The environment's tools for a program: an MCP server of one rollout, at the gateway's `/mcp`.

Streamable HTTP without sessions or streams: the answer to each request is one JSON document.
Requests come from a program, so they are not trusted. The program itself shows the answers to the
model, in its next request, which records them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.loop import Completion, StopRollout
from gymmesh_responses import CodecError, bytes_to_text, data_of_url, dumps, item_to_dict, loads
from gymmesh_runtime.errors import MeshError

#: Where programs find it, below the gateway's address.
MCP_PATH: Final = "/mcp"
_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
_ANY_OBJECT: Final = {"type": "object", "properties": {}}
# Codes of JSON-RPC 2.0.
_UNREADABLE, _NO_REQUEST, _NO_METHOD = -32700, -32600, -32601
_BAD_PARAMS, _INTERNAL = -32602, -32603

ToolCaller: TypeAlias = Callable[[str, bytes], Awaitable[resource_pb2.CallToolResponse]]
"""Calls a tool of the environment by name and JSON arguments. Raises MeshError."""


class _McpRefusal(Exception):
    """A JSON-RPC error of the protocol."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class EnvironmentTools:
    """Answers requests of MCP.

    tools: the offered tools. call: makes a call. stop: receives what ends the rollout: the error of
    a call that could not be made, or StopRollout if the environment says that the episode is over.
    """

    def __init__(
        self,
        tools: Sequence[responses_pb2.Tool],
        call: ToolCaller,
        stop: Callable[[Exception], None],
    ) -> None:
        self._tools = {one.function.name: one.function for one in tools if one.function.name}
        self._call = call
        self._stop = stop

    async def answer(self, body: bytes) -> bytes | None:
        """The answer to a body; None: the body is a notification, which has no answer."""
        request_id: Any = None
        try:
            request = _read(body)
            request_id = request.get("id")
            if request_id is None:
                return None
            result = await self._result(request)
        except _McpRefusal as refused:
            error = {"code": refused.code, "message": str(refused)}
            return dumps({"jsonrpc": "2.0", "id": request_id, "error": error})
        return dumps({"jsonrpc": "2.0", "id": request_id, "result": result})

    async def _result(self, request: Mapping[str, Any]) -> dict[str, Any]:
        method, params = request["method"], request.get("params") or {}
        if method == "initialize":
            asked = params.get("protocolVersion")
            return {
                "protocolVersion": asked if asked in _VERSIONS else _VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "environment", "version": "1"},
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": [_listed(function) for function in self._tools.values()]}
        if method == "tools/call":
            return await self._called(params)
        raise _McpRefusal(
            _NO_METHOD,
            "unknown method; this server supports only initialize, ping, tools/list and tools/call",
        )

    async def _called(self, params: Mapping[str, Any]) -> dict[str, Any]:
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or name not in self._tools:
            raise _McpRefusal(
                _BAD_PARAMS, "unknown tool; call tools/list for the names of the tools"
            )
        if not isinstance(arguments, dict):
            raise _McpRefusal(_BAD_PARAMS, "'arguments' must be an object")
        try:
            reply = await self._call(name, dumps(arguments))
        except MeshError as error:
            self._stop(error)
            # The environment's own words are for its author.
            raise _McpRefusal(
                _INTERNAL, "the tool could not be called; the rollout is over"
            ) from None
        if reply.done:
            self._stop(StopRollout(Completion(rollout_pb2.STOP_REASON_ENVIRONMENT_DONE)))
        failed = reply.outcome != rollout_pb2.TOOL_OUTCOME_OK
        return {"content": _content(reply), "isError": failed}


def _read(body: bytes) -> Mapping[str, Any]:
    try:
        request = loads(body)
    except CodecError as error:
        raise _McpRefusal(_UNREADABLE, f"the body is not JSON: {error}") from None
    if not isinstance(request, dict) or not isinstance(request.get("method"), str):
        raise _McpRefusal(_NO_REQUEST, "the body is not a single JSON-RPC request")
    if not isinstance(request.get("params") or {}, dict):
        raise _McpRefusal(_NO_REQUEST, "'params' must be an object")
    if not isinstance(request.get("id"), str | int | None):
        raise _McpRefusal(_NO_REQUEST, "'id' must be a string or a number")
    return request


def _listed(function: responses_pb2.FunctionTool) -> dict[str, Any]:
    schema = loads(function.parameters_json) if function.parameters_json else None
    return {
        "name": function.name,
        "description": function.description,
        "inputSchema": schema if isinstance(schema, dict) and schema else _ANY_OBJECT,
    }


def _content(reply: resource_pb2.CallToolResponse) -> list[dict[str, Any]]:
    if reply.WhichOneof("output") != "parts":
        return [{"type": "text", "text": bytes_to_text(reply.text)}]
    output = responses_pb2.FunctionCallOutput(parts=reply.parts)
    document = item_to_dict(responses_pb2.Item(function_call_output=output))
    return [_block(part) for part in document.get("output") or []]


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    held = data_of_url(str(part.get("image_url") or ""))
    if part.get("type") == "input_image" and held is not None:
        return {"type": "image", "data": held[1], "mimeType": held[0]}
    text = part.get("text")
    return {"type": "text", "text": text if isinstance(text, str) else dumps(part).decode()}
