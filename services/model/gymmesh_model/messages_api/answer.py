"""A message of Anthropic's Messages API as a Responses document.

Text blocks in a row are one `message` item, a part each; a thinking block is a `reasoning` item
whose `encrypted_content` is its signature; a redacted one has the endpoint's data there and no
content; a tool use is a `function_call`. The stop reason becomes `status` and
`incomplete_details`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gymmesh_model.convert import count_of, cut_short, document, status_for
from gymmesh_model.errors import AnswerInvalid, spelled_out
from gymmesh_responses import Finish, dumps, finish_of

Json = dict[str, Any]


def from_message(
    message: Mapping[str, Any],
    params: Mapping[str, Any],
    *,
    new_id: Callable[[str], str],
    now: float,
) -> Json:
    """The Responses document for a message; neither document is changed.

    Args:
        message: the body of the endpoint's reply, parsed.
        params: the Responses parameters that it answers, echoed as the API does.
        new_id: makes an id that begins with the given prefix.
        now: seconds since 1970.

    Raises AnswerInvalid.
    """
    content = message.get("content")
    if not isinstance(content, list):
        raise AnswerInvalid("the response has no content")
    stop = message.get("stop_reason")
    if stop is not None and finish_of(stop) is Finish.UNKNOWN and not content:
        raise AnswerInvalid(
            f"the response is empty, and ended with stop_reason {spelled_out(stop)!r}"
        )
    reason = None if stop is None else cut_short(stop)
    return document(
        message,
        params,
        given_id=message.get("id"),
        created=now,
        reason=reason,
        model=message.get("model"),
        output=output_of(content, status_for(reason), new_id),
        usage=_usage(message.get("usage")),
        new_id=new_id,
    )


def output_of(content: list[Any], status: str, new_id: Callable[[str], str]) -> list[Json]:
    """The output items of a message's content; an empty one is a message with empty text.

    status: of the whole answer; one that was cut short was cut in its last item.
    """
    items: list[Json] = []
    for block in content:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "text":
            part = {
                "type": "output_text",
                "text": _text_of(block, "text"),
                "annotations": _citations(block),
            }
            if items and items[-1]["type"] == "message":
                items[-1]["content"].append(part)
            else:
                items.append(_message(new_id, [part]))
        elif kind == "thinking":
            thought = {"type": "reasoning_text", "text": _text_of(block, "thinking")}
            items.append(_reasoning(new_id, [thought], block.get("signature")))
        elif kind == "redacted_thinking":
            items.append(_reasoning(new_id, [], _text_of(block, "data")))
        elif kind == "tool_use":
            items.append(_call(block, new_id))
        else:
            raise AnswerInvalid(
                f"the response's content has a block of an unknown type: {str(kind)[:100]!r}"
            )
    if not items:
        empty = {"type": "output_text", "text": "", "annotations": []}
        items.append(_message(new_id, [empty]))
    for item in items:
        if "status" in item:
            item["status"] = "completed"
    if "status" in items[-1]:
        items[-1]["status"] = status
    return items


def _message(new_id: Callable[[str], str], parts: list[Json]) -> Json:
    return {
        "type": "message",
        "id": new_id("msg_"),
        "role": "assistant",
        "status": "completed",
        "content": parts,
    }


def _reasoning(new_id: Callable[[str], str], content: list[Json], signature: Any) -> Json:
    item: Json = {"type": "reasoning", "id": new_id("rs_"), "summary": [], "content": content}
    if isinstance(signature, str) and signature:
        item["encrypted_content"] = signature
    return item


def _call(block: Mapping[str, Any], new_id: Callable[[str], str]) -> Json:
    name, call_id, given = block.get("name"), block.get("id"), block.get("input")
    if not isinstance(name, str):
        raise AnswerInvalid("a tool call of the response has no name")
    # Of a stream, the text that the model wrote.
    arguments = given if isinstance(given, str) else dumps({} if given is None else given).decode()
    return {
        "type": "function_call",
        "id": new_id("fc_"),
        "call_id": call_id if isinstance(call_id, str) and call_id else new_id("call_"),
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def _citations(block: Mapping[str, Any]) -> list[Any]:
    cited = block.get("citations")
    return list(cited) if isinstance(cited, list) else []


def _text_of(block: Mapping[str, Any], key: str) -> str:
    text = block.get(key)
    if not isinstance(text, str):
        raise AnswerInvalid(f"a block of the response's content has no {key}")
    return text


def _usage(usage: object) -> Json | None:
    """Tokens read from a cache and written to one are input tokens as well."""
    if not isinstance(usage, Mapping):
        return None
    cached = count_of(usage, "cache_read_input_tokens")
    read = count_of(usage, "input_tokens") + cached + count_of(usage, "cache_creation_input_tokens")
    written = count_of(usage, "output_tokens")
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }
