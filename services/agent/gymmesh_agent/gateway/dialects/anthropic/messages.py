"""Messages of the Anthropic API as Responses items. Pure.

A user message's tool results become separate items, and its other blocks become messages around
them. An assistant message's blocks become items in their order; consecutive texts become one
message. `cache_control` is always dropped, and a list with one text becomes the text: programs move
`cache_control`, and change between both forms, within the same conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gymmesh_agent.gateway.dialects.reading import (
    Draft,
    UnreadableRequest,
    a_list,
    a_text,
    an_object,
    shown,
)
from gymmesh_agent.gateway.minted import minted
from gymmesh_agent.gateway.request import Json
from gymmesh_responses import dumps_clean

_BILLING: Final = "x-anthropic-billing-header"
_DOCUMENT_NOTES: Final = ("citations", "context", "title")


def read_system(draft: Draft, value: object) -> None:
    """Add the system text, without the block that Claude Code uses for billing."""
    if value is None:
        return
    if not isinstance(value, str):
        blocks = a_list(value, "system")
        kept = [block for block in blocks if not _is_billing(block)]
        if len(kept) < len(blocks):
            draft.leave_out("system.billing_header")
        value = _joined(
            [_content_part(draft, block, f"system[{index}]") for index, block in enumerate(kept)]
        )
    if value:
        draft.items.append({"type": "message", "role": "system", "content": value})


def read_messages(draft: Draft, messages: list[Any]) -> None:
    """Add the messages to the draft's items."""
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        given = an_object(message, place)
        role, content = given.get("role"), given.get("content")
        if not isinstance(content, str):
            a_list(content, f"{place}.content")
        if role == "assistant":
            _assistant(draft, content, place)
        elif role in ("user", "system"):
            _spoken(draft, role, content, place)
        else:
            raise UnreadableRequest(f"{place} has an unknown role {shown(role)}")


def _is_billing(block: object) -> bool:
    text = block.get("text") if isinstance(block, dict) else None
    return isinstance(text, str) and text.startswith(_BILLING)


def _spoken(draft: Draft, role: str, content: Any, place: str) -> None:
    """A user's or a system message."""
    if isinstance(content, str):
        draft.items.append({"type": "message", "role": role, "content": content})
        return
    parts: list[Json] = []
    for index, block in enumerate(content):
        where = f"{place}.content[{index}]"
        if an_object(block, where).get("type") == "tool_result":
            _close(draft, role, parts)
            parts = []
            draft.items.append(_tool_result(draft, block, where))
        else:
            parts.append(_content_part(draft, block, where))
    if parts or not content:
        _close(draft, role, parts or [{"type": "input_text", "text": ""}])


def _close(draft: Draft, role: str, parts: list[Json]) -> None:
    if parts:
        draft.items.append({"type": "message", "role": role, "content": _joined(parts)})


def _joined(parts: list[Json]) -> str | list[Json]:
    """One text as text, anything else as parts; nothing is an empty text."""
    if not parts:
        return ""
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        text: str = parts[0]["text"]
        return text
    return parts


def _tool_result(draft: Draft, block: Json, place: str) -> Json:
    """A tool's output. The output of a failed tool is `incomplete`, because Responses has no
    other way to express that.
    """
    made: Json = {
        "type": "function_call_output",
        "call_id": a_text(block.get("tool_use_id"), f"{place}.tool_use_id"),
    }
    content = block.get("content")
    if content is None or isinstance(content, str):
        made["output"] = content or ""
    else:
        blocks = a_list(content, f"{place}.content")
        parts = [_content_part(draft, one, f"{place}.content") for one in blocks]
        made["output"] = _joined(parts)
    if block.get("is_error") is True:
        made["status"] = "incomplete"
    return made


def _content_part(draft: Draft, block: object, place: str) -> Json:
    """A block that is not a tool's. A block of an unknown type is passed to the model service
    unchanged.
    """
    given = an_object(block, place)
    kind = given.get("type")
    if kind == "text":
        return {"type": "input_text", "text": a_text(given.get("text"), f"{place}.text")}
    if kind == "image":
        return _image(an_object(given.get("source"), f"{place}.source"), place)
    if kind == "document":
        return _document(draft, given, place)
    if kind == "search_result":
        return _search_result(draft, given, place)
    if kind == "tool_reference":  # the endpoint would put the tool's definition here
        name = a_text(given.get("tool_name"), f"{place}.tool_name")
        return {"type": "input_text", "text": f"The tool {name} is available now."}
    return _uncached(given)


def _search_result(draft: Draft, block: Json, place: str) -> Json:
    """A search result as text: title, source and contents, a line each."""
    if block.get("citations") is not None:
        draft.leave_out("messages")
    lines = [block.get("title"), block.get("source")]
    for one in a_list(block.get("content"), f"{place}.content"):
        lines.append(a_text(an_object(one, f"{place}.content").get("text"), f"{place}.content"))
    return {"type": "input_text", "text": "\n".join(one for one in lines if isinstance(one, str))}


def _image(source: Json, place: str) -> Json:
    kind = source.get("type")
    if kind == "base64":
        return {"type": "input_image", "image_url": _data_url(source, place)}
    if kind == "url":
        return {"type": "input_image", "image_url": a_text(source.get("url"), f"{place}.url")}
    if kind == "file":
        return {"type": "input_image", "file_id": a_text(source.get("file_id"), place)}
    raise UnreadableRequest(f"{place}.source has an unknown type {shown(kind)}")


def _document(draft: Draft, block: Json, place: str) -> Json:
    source = an_object(block.get("source"), f"{place}.source")
    if any(block.get(key) is not None for key in _DOCUMENT_NOTES):
        draft.leave_out("messages")
    kind = source.get("type")
    if kind == "text":
        return {"type": "input_text", "text": a_text(source.get("data"), f"{place}.source.data")}
    if kind == "base64":
        name = block.get("title")
        filename = name if isinstance(name, str) else "document.pdf"
        data = _data_url(source, place)
        return {"type": "input_file", "filename": filename, "file_data": data}
    if kind == "url":
        return {"type": "input_file", "file_url": a_text(source.get("url"), f"{place}.source.url")}
    if kind == "file":
        return {"type": "input_file", "file_id": a_text(source.get("file_id"), place)}
    return _uncached(block)


def _data_url(source: Json, place: str) -> str:
    media = a_text(source.get("media_type"), f"{place}.source.media_type")
    return f"data:{media};base64,{a_text(source.get('data'), f'{place}.source.data')}"


def _uncached(block: Json) -> Json:
    return {key: value for key, value in block.items() if key != "cache_control"}


def _assistant(draft: Draft, content: Any, place: str) -> None:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    texts: list[Json] = []
    for index, block in enumerate(content):
        where = f"{place}.content[{index}]"
        given = an_object(block, where)
        kind = given.get("type")
        if kind == "text":
            text = a_text(given.get("text"), f"{where}.text")
            texts.append({"type": "output_text", "text": text, "annotations": []})
            if given.get("citations"):
                draft.leave_out("messages")
            continue
        _close(draft, "assistant", texts)
        texts = []
        read = _BLOCKS.get(kind) if isinstance(kind, str) else None
        draft.items.append(read(given, where) if read else _uncached(given))
    if not content:
        texts = [{"type": "output_text", "text": "", "annotations": []}]
    _close(draft, "assistant", texts)


def _thinking(block: Json, place: str) -> Json:
    text = a_text(block.get("thinking"), f"{place}.thinking")
    made = _signed(block.get("signature"))
    made["content"] = [{"type": "reasoning_text", "text": text}]
    return made


def _redacted_thinking(block: Json, place: str) -> Json:
    return _signed(a_text(block.get("data"), f"{place}.data"))


def _signed(signature: object) -> Json:
    """Reasoning with its signature. A signature of the gateway becomes the item's id; another
    endpoint's becomes the encrypted content.
    """
    made: Json = {"type": "reasoning", "summary": []}
    if isinstance(signature, str) and signature:
        made["id" if minted(signature) else "encrypted_content"] = signature
    return made


def _tool_use(block: Json, place: str) -> Json:
    given = block.get("input")
    return {
        "type": "function_call",
        "call_id": a_text(block.get("id"), f"{place}.id"),
        "name": a_text(block.get("name"), f"{place}.name"),
        "arguments": dumps_clean({} if given is None else given).decode(),
        "status": "completed",
    }


_BLOCKS: Final[Mapping[str, Callable[[Json, str], Json]]] = {
    "thinking": _thinking,
    "redacted_thinking": _redacted_thinking,
    "tool_use": _tool_use,
}
