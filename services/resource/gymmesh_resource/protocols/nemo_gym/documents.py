"""Rows, transcripts and verdicts as NeMo Gym's agents send and expect them. Pure.

Format: `BaseRunRequest`, `BaseVerifyRequest` and `BaseVerifyResponse` of nemo-gym 0.7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_responses import (
    CodecError,
    JsonValue,
    items_from_json,
    loads,
    params_to_dict,
    tool_to_dict,
)
from gymmesh_runtime.errors import field_invalid

_PARAMS: Final = "responses_create_params"
_RESPONSE: Final = "response"
#: What marks the body of an Environment Server, which seeds and closes in another way.
ENVIRONMENT_SERVER: Final = "resources_session_id"
_STOPS: Final = {
    "max_output_tokens": rollout_pb2.STOP_REASON_MAX_OUTPUT_TOKENS,
    "content_filter": rollout_pb2.STOP_REASON_CONTENT_FILTER,
}


def row_in(body: Mapping[str, Any]) -> dict[str, Any]:
    """The task's row in a request: without what is NeMo Gym's own, and without the parameters that
    its agents fill up with null.
    """
    row = {
        key: value
        for key, value in body.items()
        if key != _RESPONSE and not key.startswith("_ng_") and value is not None
    }
    if isinstance(params := row.get(_PARAMS), dict):
        row[_PARAMS] = {key: value for key, value in params.items() if value is not None}
    return row


def transcript_in(body: Mapping[str, Any]) -> list[responses_pb2.Item]:
    """The items of the response that the verifier judges. Raises FIELD_INVALID."""
    response = body.get(_RESPONSE)
    if not isinstance(response, dict):
        raise field_invalid(_RESPONSE, "is missing. Send the response that the verifier judges")
    output = response.get("output", [])
    try:
        return items_from_json(output)
    except CodecError as error:
        raise field_invalid(f"{_RESPONSE}.output", f"cannot be read: {error}") from None


def stop_in(body: Mapping[str, Any]) -> rollout_pb2.StopReason.ValueType:
    """Why the response ended."""
    details = body[_RESPONSE].get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    return _STOPS.get(str(reason), rollout_pb2.STOP_REASON_MODEL_FINISHED)


def verdict_in(
    body: Mapping[str, Any], verdict: rollout_pb2.Verification, reward: float
) -> dict[str, JsonValue]:
    """The answer to `/verify`: the request, the reward, and the components as numbers beside it."""
    components: dict[str, JsonValue] = {part.name: part.value for part in verdict.components}
    beside = {name: value for name, value in components.items() if name not in body}
    parts: dict[str, JsonValue] = {"reward_components": components} if components else {}
    return {**body, **beside, **parts, "reward": reward}


def row_of(
    task: rollout_pb2.Task, tools: Sequence[responses_pb2.FunctionTool]
) -> dict[str, JsonValue]:
    """A task as a row for NeMo Gym's agents, with the environment's tools."""
    payload = loads(task.payload_json) if task.payload_json else {}
    params = params_to_dict(task.params)
    own = params.get("tools")
    named = [*(own if isinstance(own, list) else []), *map(_tool, tools)]
    if named:
        params["tools"] = [_filled(tool) for tool in named]
    if "input" not in params:
        params["input"] = []
    row = {**payload} if isinstance(payload, dict) else {}
    return row | {"task_id": task.task_id, _PARAMS: params}


def _tool(function: responses_pb2.FunctionTool) -> JsonValue:
    return tool_to_dict(responses_pb2.Tool(function=function))


def _filled(tool: JsonValue) -> JsonValue:
    """A function tool with the keys that its servers want of each."""
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return tool
    return {"strict": False, "parameters": {}, **tool}
