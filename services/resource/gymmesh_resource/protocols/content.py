"""The texts and images that a policy sees: tools' answers, messages, prompts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_responses import (
    JsonValue,
    bytes_to_text,
    data_of_url,
    dumps,
    item_to_dict,
    items_to_list,
    loads,
    params_to_dict,
)


@dataclass(frozen=True, slots=True)
class ShownImage:
    """An image: its media type, such as `image/png`, and its bytes in base64."""

    media_type: str
    data: str


ShownPart: TypeAlias = str | ShownImage


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message: who says it (system, user, assistant), and its parts."""

    role: str
    parts: Sequence[ShownPart]


def parts_of_reply(reply: resource_pb2.CallToolResponse) -> list[ShownPart]:
    """A tool's answer."""
    if reply.WhichOneof("output") != "parts":
        return [bytes_to_text(reply.text)]
    output = responses_pb2.FunctionCallOutput(parts=reply.parts)
    document = item_to_dict(responses_pb2.Item(function_call_output=output))
    return _parts(document.get("output")) if isinstance(document, dict) else []


def parts_of_items(items: Iterable[responses_pb2.Item]) -> list[ShownPart]:
    """What messages say, one after another; items of other kinds as JSON."""
    return [part for item in items for part in _said(item_to_dict(item)).parts]


def messages_of(
    task: rollout_pb2.Task, first_items: Sequence[responses_pb2.Item]
) -> list[ShownMessage]:
    """A task's prompt: instructions, input, and what the environment says first."""
    document = params_to_dict(task.params)
    messages = []
    if isinstance(instructions := document.get("instructions"), str) and instructions:
        messages.append(ShownMessage("system", [instructions]))
    given = document.get("input")
    if isinstance(given, str):
        messages.append(ShownMessage("user", [given]))
    elif isinstance(given, list):
        messages += map(_said, given)
    return [*messages, *map(_said, items_to_list(first_items))]


def text_of_parts(parts: Iterable[ShownPart]) -> str:
    """The texts among the parts, in lines."""
    return "\n".join(part for part in parts if isinstance(part, str))


def schema_of(function: responses_pb2.FunctionTool) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments; any object where it has none."""
    schema = loads(function.parameters_json) if function.parameters_json else None
    return schema if isinstance(schema, dict) and schema else {"type": "object", "properties": {}}


def verdict_document(verdict: rollout_pb2.Verification) -> dict[str, JsonValue]:
    """A verdict for clients that show one: reward, components, verifier."""
    return {
        "reward": verdict.reward,
        "components": {part.name: part.value for part in verdict.components},
        "verifier": verdict.verifier,
        "verifier_version": verdict.verifier_version,
    }


def _said(item: JsonValue) -> ShownMessage:
    if not isinstance(item, dict):
        return ShownMessage("user", [item if isinstance(item, str) else dumps(item).decode()])
    kind, role = item.get("type", "message"), item.get("role")
    if kind != "message" or not isinstance(role, str):
        by_policy = kind in ("function_call", "reasoning")
        return ShownMessage("assistant" if by_policy else "user", [dumps(item).decode()])
    return ShownMessage("system" if role == "developer" else role, _parts(item.get("content")))


def _parts(content: JsonValue) -> list[ShownPart]:
    if isinstance(content, str):
        return [content]
    return [_part(part) for part in content] if isinstance(content, list) else []


def _part(part: JsonValue) -> ShownPart:
    if isinstance(part, Mapping):
        held = data_of_url(str(part.get("image_url") or ""))
        if part.get("type") == "input_image" and held is not None:
            return ShownImage(*held)
        if isinstance(text := part.get("text"), str):
            return text
    return part if isinstance(part, str) else dumps(part).decode()
