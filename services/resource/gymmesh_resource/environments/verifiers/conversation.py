"""A conversation as verifiers' messages, with which of them the policy wrote. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh_responses import bytes_to_text, item_to_dict, message_text, text_of

# The oldest name of the role is the only one that verifiers has.
_ROLES: Final = {"developer": "system"}


def conversation_of(
    params: responses_pb2.ResponseParams, items: Sequence[responses_pb2.Item]
) -> list[dict[str, Any]]:
    """The prompt and the messages after it; `sampled` has for each message whether the policy wrote
    it.

    Texts only: images are omitted. The reasoning, the text and the calls of one answer are one
    message.
    """
    messages: list[dict[str, Any]] = []
    if params.instructions:
        messages.append({"role": "system", "content": params.instructions, "sampled": False})
    _add(messages, params.input, sampled=False)
    _add(messages, items, sampled=True)
    return messages


def _add(
    messages: list[dict[str, Any]], items: Iterable[responses_pb2.Item], *, sampled: bool
) -> None:
    answer: dict[str, Any] | None = None  # the one that further items belong to
    for item in items:
        kind = item.WhichOneof("kind")
        if kind == "function_call_output":
            answer = None
            output = item.function_call_output
            said = {"role": "tool", "tool_call_id": output.call_id, "content": text_of(item)}
            messages.append(said | {"sampled": False})
            continue
        if kind == "message" and item.message.role != "assistant":
            answer = None
            role = _ROLES.get(item.message.role, item.message.role)
            text = message_text(item, item.message)
            messages.append({"role": role, "content": text, "sampled": False})
            continue
        if answer is None or _begins_another(answer, kind):
            answer = {"role": "assistant", "content": None, "sampled": sampled}
            messages.append(answer)
        if kind == "message":
            answer["content"] = (answer["content"] or "") + message_text(item, item.message)
        elif kind == "function_call":
            call = item.function_call
            answer.setdefault("tool_calls", []).append(
                {"id": call.call_id, "name": call.name, "arguments": bytes_to_text(call.arguments)}
            )
        elif kind == "reasoning":
            answer["reasoning_content"] = answer.get("reasoning_content", "") + _thought(item)


def _begins_another(answer: dict[str, Any], kind: str | None) -> bool:
    """Whether an item of this kind is of a further answer: reasoning comes first in each."""
    return kind == "reasoning" and (answer["content"] is not None or "tool_calls" in answer)


def _thought(item: responses_pb2.Item) -> str:
    """The text of a reasoning item, or else its summary."""
    document = item_to_dict(item)
    parts = document.get("content") or document.get("summary") or ()
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))
