"""The JSON documents that NeMo Gym's servers take and give. Pure.

Format: `BaseSeedSessionRequest`, `BaseVerifyRequest` and `NeMoGymResponse` of nemo-gym 0.7. The
servers check them strictly: a response without an id, or a text part without `annotations`, is
refused, so what a model service left out is filled in here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource import Rollout, Skipped, Task, TaskInvalid, Verdict
from gymmesh_responses import items_to_list, params_to_dict, text_of

# The row's key for what the server knows under names that are used otherwise here.
OWN_VALUES = "nemo_gym"
PARAMS = "responses_create_params"
_RESPONSE = "response"
# The id that a row without one is given when it is read: none of the server's keys.
_MADE_UP = re.compile(r"t-[0-9a-f]{32}(-\d+)?")
# Of a verdict, what is kept otherwise or says nothing.
_NO_EVIDENCE = ("reward", PARAMS, _RESPONSE, "mask_sample", "agent_ref")
# Identities and records of NeMo Gym's own.
_OWN_KEYS = ("_ng_", "ng_")
_CUT = {
    rollout_pb2.STOP_REASON_MAX_OUTPUT_TOKENS: "max_output_tokens",
    rollout_pb2.STOP_REASON_CONTENT_FILTER: "content_filter",
}


class BadVerdict(Exception):
    """The server's answer to `/verify` is not a verdict; the text has the reason."""


def row_of(task: Task) -> dict[str, Any]:
    """The task's row: the body of `/seed_session`, which `/verify` repeats.

    What the row has under `nemo_gym` comes last: there a row has the server's own values of keys
    that mean something else here. Raises `TaskInvalid`.
    """
    row: dict[str, Any] = {PARAMS: params_to_dict(task.message.params)}
    if task.message.task_id and not _MADE_UP.fullmatch(task.message.task_id):
        row["task_id"] = task.message.task_id
    if task.message.HasField("seed"):
        row["seed"] = task.message.seed
    if task.message.tags:
        row["tags"] = task.tags
    if task.message.environment:
        row["environment"] = task.message.environment
    if task.message.agent:
        row["agent"] = task.message.agent
    own = task.payload.get(OWN_VALUES, {})
    if not isinstance(own, dict):
        raise TaskInvalid(
            OWN_VALUES, "must be an object that maps keys of the row to the server's own values"
        )
    others = {key: value for key, value in task.payload.items() if key != OWN_VALUES}
    return row | others | own


def tool_names(task: Task) -> list[str]:
    """The names of the function tools that the row itself offers."""
    tools = task.message.params.tools
    return [tool.function.name for tool in tools if tool.HasField("function")]


def verify_body(rollout: Rollout, *, response_id: str, created_at: float) -> dict[str, Any]:
    """The body of `/verify`: the row, and the response with everything after the input.

    `created_at`: seconds since 1970.
    """
    row = row_of(rollout.task)
    response = response_of(rollout.items, row[PARAMS], rollout.stop_reason)
    return row | {_RESPONSE: response | {"id": response_id, "created_at": created_at}}


def response_of(
    items: Sequence[responses_pb2.Item],
    params: Mapping[str, Any],
    stop_reason: rollout_pb2.StopReason.ValueType | None,
) -> dict[str, Any]:
    """A response whose output is these items, to a request with these parameters.

    stop_reason: why the rollout ended with it; None: it goes on.
    """
    cut = _CUT.get(stop_reason) if stop_reason else None
    choice = params.get("tool_choice")
    parallel = params.get("parallel_tool_calls")
    return {
        "id": "resp_step",
        "object": "response",
        "created_at": 0,
        "model": params.get("model") or "policy",
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": cut} if cut else None,
        "error": None,
        "output": [
            _completed(document, item, position)
            for position, (document, item) in enumerate(
                zip(items_to_list(items), items, strict=True)
            )
        ],
        "parallel_tool_calls": True if parallel is None else parallel,
        "tool_choice": "auto" if choice is None else choice,
        "tools": params.get("tools") or [],
        "usage": None,
    }


def verdict_of(answer: Mapping[str, Any], sent: Mapping[str, Any]) -> Verdict | Skipped:
    """The server's answer to `/verify` as a verdict, without the keys that it echoes from `sent`.

    Numbers other than the reward become components. Raises `BadVerdict`, also for a reward that the
    server marks as not a measurement (`mask_sample`).
    """
    if answer.get("verification_skipped") is True:
        return Skipped("the NeMo Gym agent is configured to skip the verification")
    reward = _number(answer.get("reward"))
    if reward is None:
        raise BadVerdict("the reward is not a finite number")
    if answer.get("mask_sample") is True:
        kind = answer.get("failure_kind")
        raise BadVerdict(
            "it reports that the reward is not a measurement (mask_sample"
            + (f", {kind:.100})" if isinstance(kind, str) else ")")
        )
    answered = {
        key: value
        for key, value in answer.items()
        if key not in _NO_EVIDENCE
        and not key.startswith(_OWN_KEYS)
        and not (key in sent and sent[key] == value)
    }
    numbers = [(key, _number(value, bool)) for key, value in answered.items()]
    parts = answered.get("reward_components")
    if isinstance(parts, dict):
        numbers += [(key, _number(value)) for key, value in parts.items()]
    components = {key: number for key, number in numbers if number is not None}
    return Verdict(reward, components, answered)


def _number(value: object, *more: type) -> float | None:
    if isinstance(value, bool) and bool not in more:
        return None
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _completed(document: dict[str, Any], item: responses_pb2.Item, position: int) -> dict[str, Any]:
    """An item with what the servers' models require and a backend may have left out."""
    match item.WhichOneof("kind"):
        case "message" if item.message.role == "assistant":
            return document | {
                "type": "message",
                "id": document.get("id") or f"msg_{position}",
                "status": document.get("status") or "completed",
                "content": _content(document.get("content")),
            }
        case "message":
            return document | {"type": "message"}
        case "function_call_output":
            # The servers take text only.
            return document | {"output": text_of(item)}
        case "reasoning":
            return document | {
                "id": document.get("id") or f"rs_{position}",
                "summary": document.get("summary") or [],
            }
    return document


def _content(content: object) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "output_text", "text": content, "annotations": []}]
    parts = content if isinstance(content, list) else []
    return [
        part | {"annotations": part.get("annotations") or []}
        if isinstance(part, dict) and part.get("type") == "output_text"
        else part
        for part in parts
    ]
