"""The JSON documents of OpenEnv's protocol. Pure.

Format: `openenv.core.env_server` of openenv 0.10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.protocols.content import (
    ShownImage,
    ShownPart,
    messages_of,
    schema_of,
    text_of_parts,
    verdict_document,
)
from gymmesh_resource.protocols.session import ProtocolSession, ProtocolStep, words_of
from gymmesh_responses import JsonValue, items_to_list, params_to_dict
from gymmesh_runtime.errors import MeshError

_Reason = errors_pb2.ErrorReason
_CODES: Final[Mapping[int, str]] = {
    _Reason.ERROR_REASON_FIELD_INVALID: "VALIDATION_ERROR",
    _Reason.ERROR_REASON_REQUIRED_FIELD_MISSING: "VALIDATION_ERROR",
    _Reason.ERROR_REASON_TASK_INVALID: "VALIDATION_ERROR",
    _Reason.ERROR_REASON_SESSION_LIMIT: "CAPACITY_REACHED",
    _Reason.ERROR_REASON_DRAINING: "CAPACITY_REACHED",
    _Reason.ERROR_REASON_SESSION_NOT_FOUND: "SESSION_ERROR",
}
_TOOL_ERRORS: Final = {
    rollout_pb2.TOOL_OUTCOME_BAD_ARGUMENTS: "invalid_args",
    rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL: "tool_not_found",
}


def first_observation(session: ProtocolSession) -> dict[str, JsonValue]:
    """The first observation of an episode: the task's prompt, as Responses items and as text."""
    given = params_to_dict(session.task.params)
    said = given.get("input")
    items: JsonValue = [{"role": "user", "content": said}] if isinstance(said, str) else said or []
    messages = messages_of(session.task, session.first_items)
    return _result(
        {
            "task_id": session.task.task_id,
            "instructions": given.get("instructions"),
            "input": [*_list(items), *items_to_list(session.first_items)],
            "text": text_of_parts(part for one in messages for part in one.parts),
        },
        {},
    )


def tool_observation(name: str, step: ProtocolStep) -> dict[str, JsonValue]:
    """A tool's answer. If the tool refuses the call, the result has `is_error`."""
    kind = _TOOL_ERRORS.get(step.outcome)
    if kind is not None:
        error: JsonValue = {"error_type": kind, "message": text_of_parts(step.parts)}
        return _stepped({"tool_name": name, "result": None, "error": error}, step)
    return _stepped({"tool_name": name, "result": tool_result(step), "error": None}, step)


def message_observation(step: ProtocolStep) -> dict[str, JsonValue]:
    """The environment's reply to a message of the policy."""
    return _stepped({"text": text_of_parts(step.parts), "content": _content(step.parts)}, step)


def tools_observation(tools: Sequence[responses_pb2.FunctionTool]) -> dict[str, JsonValue]:
    """The tools, as an observation."""
    listed = [
        {"name": tool.name, "description": tool.description, "input_schema": schema_of(tool)}
        for tool in tools
    ]
    return _result({"tools": listed}, {})


def mcp_tools(tools: Sequence[responses_pb2.FunctionTool]) -> dict[str, JsonValue]:
    """The tools, as MCP lists them."""
    listed = [
        {"name": tool.name, "description": tool.description, "inputSchema": schema_of(tool)}
        for tool in tools
    ]
    return {"tools": listed}


def tool_result(step: ProtocolStep) -> dict[str, JsonValue]:
    """A tool's answer in MCP's form, with its text as `data`."""
    meta: JsonValue = None
    if step.done:
        meta = {"gymmesh/done": True, "gymmesh/reward": step.reward}
    return {
        "content": _content(step.parts),
        "structured_content": None,
        "data": text_of_parts(step.parts),
        "is_error": step.outcome != rollout_pb2.TOOL_OUTCOME_OK,
        "meta": meta,
    }


def state_document(episode_id: str | None, session: ProtocolSession | None) -> dict[str, JsonValue]:
    """The state of a session between two actions."""
    if session is None:
        return {"episode_id": episode_id, "step_count": 0}
    return {
        "episode_id": episode_id,
        "step_count": session.steps,
        "task_id": session.task.task_id,
        "done": session.done,
        "reward": session.total,
    }


def error_document(error: MeshError) -> dict[str, JsonValue]:
    """An error: the socket stays open after it."""
    code = _CODES.get(error.reason, "EXECUTION_ERROR")
    return failure(f"{error.reason_name}: {words_of(error)}", code, reason=error.reason_name)


def failure(message: str, code: str, **more: JsonValue) -> dict[str, JsonValue]:
    """An error of the protocol itself."""
    return {"type": "error", "data": {"message": message, "code": code, **more}}


def schemas(tools: Sequence[responses_pb2.FunctionTool]) -> dict[str, JsonValue]:
    """The JSON Schemas of actions, observations and the state."""
    listing = _action("list_tools", {}, [])
    say = _action("answer", {"answer": {"type": "string"}}, ["answer"])
    calls = [
        _action(
            "call_tool",
            {"tool_name": {"const": tool.name}, "arguments": schema_of(tool)},
            ["tool_name", "arguments"],
            tool.description,
        )
        for tool in tools
    ]
    observation: JsonValue = {
        "title": "Observation",
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "content": {"type": "array"},
            "input": {"type": "array"},
            "tool_name": {"type": "string"},
            "result": {},
            "error": {},
            "tools": {"type": "array"},
            "metadata": {"type": "object"},
        },
    }
    state: JsonValue = {
        "title": "State",
        "type": "object",
        "properties": {
            "episode_id": {"type": ["string", "null"]},
            "step_count": {"type": "integer"},
            "task_id": {"type": "string"},
            "done": {"type": "boolean"},
            "reward": {"type": ["number", "null"]},
        },
    }
    action: JsonValue = {"title": "Action", "type": "object", "oneOf": [listing, say, *calls]}
    return {"action": action, "observation": observation, "state": state}


def metadata(about: resource_pb2.GetEnvironmentResponse) -> dict[str, JsonValue]:
    """What the environment is."""
    return {
        "name": about.name,
        "description": about.description,
        "version": about.version,
        "readme_content": None,
        "author": None,
        "documentation_url": None,
    }


def openapi(about: resource_pb2.GetEnvironmentResponse, paths: Mapping[str, Sequence[str]]) -> Any:
    """The paths with their methods, as far as tools look for them."""
    return {
        "openapi": "3.1.0",
        "info": {"title": about.name, "version": about.version},
        "paths": {
            path: {method.lower(): {"responses": {"200": {"description": "OK"}}} for method in all_}
            for path, all_ in paths.items()
        },
    }


def _action(
    kind: str, properties: dict[str, Any], required: list[str], description: str = ""
) -> dict[str, Any]:
    about = {"description": description} if description else {}
    return about | {
        "type": "object",
        "properties": {
            "type": {"const": kind},
            "metadata": {"type": "object"},
            **properties,
        },
        "required": ["type", *required],
        "additionalProperties": False,
    }


def _stepped(observation: dict[str, JsonValue], step: ProtocolStep) -> dict[str, JsonValue]:
    more: dict[str, JsonValue] = {}
    if step.verification is not None:
        more["verification"] = verdict_document(step.verification)
    return _result(observation, more, step.reward, done=step.done)


def _result(
    observation: dict[str, JsonValue],
    more: dict[str, JsonValue],
    reward: float | None = None,
    *,
    done: bool = False,
) -> dict[str, JsonValue]:
    """An observation as clients expect it; they read the metadata in either place."""
    document: dict[str, JsonValue] = {
        "observation": observation | {"metadata": more},
        "reward": reward,
        "done": done,
    }
    return document | ({"metadata": more} if more else {})


def _content(parts: Sequence[ShownPart]) -> list[JsonValue]:
    return [
        {"type": "image", "data": part.data, "mimeType": part.media_type}
        if isinstance(part, ShownImage)
        else {"type": "text", "text": part}
        for part in parts
    ]


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
