"""A task's prompt as messages of verifiers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import UserError
from gymmesh_responses import item_to_dict

_ROLES: Final = {"developer": "system"}
_TEXTS: Final = ("input_text", "output_text", "text")


def prompt_of(task: pb.Task) -> list[dict[str, Any]]:
    """The instructions and the input. Raises UserError for what verifiers has no message for."""
    told = task.params.instructions
    first = [{"role": "system", "content": told}] if told else []
    return first + messages_from(task.params.input, task.task_id)


def messages_from(items: Sequence[responses_pb2.Item], task_id: str) -> list[dict[str, Any]]:
    """Messages of the same content. Raises UserError as `prompt_of`."""
    return [_message(item_to_dict(item), task_id) for item in items]


def _message(item: dict[str, Any], task_id: str) -> dict[str, Any]:
    if item.get("type", "message") != "message":
        raise UserError(
            f"task {task_id}: its prompt has an item of type {item['type']!r}, which the library "
            "`verifiers` can't represent in a prompt"
        )
    content = item.get("content")
    if isinstance(content, list):
        parts = [_part(part, task_id) for part in content]
        texts = [part["text"] for part in parts if part["type"] == "text"]
        content = "".join(texts) if len(texts) == len(parts) else parts
    role = item["role"]
    return {"role": _ROLES.get(role, role), "content": content or ""}


def _part(part: dict[str, Any], task_id: str) -> dict[str, Any]:
    if part.get("type") in _TEXTS:
        return {"type": "text", "text": part["text"]}
    if part.get("type") == "input_image" and isinstance(part.get("image_url"), str):
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    raise UserError(
        f"task {task_id}: its prompt has a part of type {part.get('type')!r}, which the library "
        "`verifiers` can't represent"
    )
