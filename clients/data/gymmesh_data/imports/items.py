"""Chat messages as Responses items: what `conversation_of` does, the other way. Pure."""

from __future__ import annotations

from typing import Any

from gymmesh_data.rollout import Json, is_answer
from gymmesh_responses import CodecError, dumps, loads


class RowRefused(Exception):
    """A row cannot be imported. The text has the key, and what is wrong with the value."""


def items_of(messages: Any, where: str) -> list[Json]:
    """The items of messages, or of a text by the user. `where`: the key, for error messages. Raises
    RowRefused if the value is not messages.
    """
    if isinstance(messages, str):
        return [{"type": "message", "role": "user", "content": messages}]
    if not isinstance(messages, list):
        raise RowRefused(f"{where}: must be a string or a list of messages")
    items: list[Json] = []
    for place, message in enumerate(messages):
        items += _of_message(message, f"{where}[{place}]")
    return items


def first_answer(items: list[Json]) -> int:
    """The number of items before the model's first item."""
    return next((place for place, item in enumerate(items) if is_answer(item)), len(items))


def tools_of(tools: Any, where: str) -> list[Json]:
    """Tools in the form of the Responses API, from tools in the form of either API or from JSON
    text. Raises RowRefused if the value is not tools.
    """
    if isinstance(tools, str):
        tools = _json(tools, where)
    if tools is None:
        return []
    if not isinstance(tools, list) or not all(isinstance(one, dict) for one in tools):
        raise RowRefused(f"{where}: must be a list of tools, or JSON text with a list of tools")
    found: list[Json] = []
    for tool in tools:
        function = tool.get("function")
        if tool.get("type", "function") == "function" and isinstance(function, dict):
            # Tables of Arrow have null for what a tool lacks.
            found.append({"type": "function", **_without_nulls(function)})
        else:
            found.append(_without_nulls(tool))
    return found


def _of_message(message: Any, where: str) -> list[Json]:
    if not isinstance(message, dict):
        raise RowRefused(
            f"{where}: must be a message: an object with the keys 'role' and 'content'"
        )
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        call_id, output = _text(message, "tool_call_id", where), _text_of(content, where)
        return [{"type": "function_call_output", "call_id": call_id, "output": output}]
    if role == "assistant":
        return _of_answer(message, where)
    if role not in ("system", "developer", "user"):
        raise RowRefused(
            f"{where}.role: must be 'system', 'developer', 'user', 'assistant' or "
            f"'tool', not {role!r}"
        )
    return [{"type": "message", "role": role, "content": _content(content, where)}]


def _of_answer(message: Json, where: str) -> list[Json]:
    items: list[Json] = []
    thought = message.get("reasoning_content") or message.get("reasoning") or ""
    said = ""
    if isinstance(message.get("content"), list):
        for part in message["content"]:
            if isinstance(part, dict) and part.get("type") == "reasoning":
                thought = f"{thought}{part.get('reasoning') or part.get('summary') or ''}"
            elif isinstance(part, dict) and isinstance(part.get("text"), str):
                said += part["text"]
            else:
                raise RowRefused(f"{where}.content: has a part that is not text")
    elif message.get("content") is not None:
        said = _text_of(message["content"], where)
    if thought:
        content = [{"type": "reasoning_text", "text": str(thought)}]
        items.append({"type": "reasoning", "summary": [], "content": content})
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise RowRefused(f"{where}.tool_calls: must be a list")
    if said or not (thought or calls):
        text = {"type": "output_text", "text": said, "annotations": []}
        items.append({"type": "message", "role": "assistant", "content": [text]})
    for place, call in enumerate(calls):
        items.append(_tool_call(call, f"{where}.tool_calls[{place}]"))
    return items


def _tool_call(call: Any, where: str) -> Json:
    if isinstance(call, str):
        call = _json(call, where)
    if not isinstance(call, dict):
        raise RowRefused(f"{where}: must be an object")
    function = call.get("function")
    # Inspect has the function's name and its arguments beside the id, as verifiers does.
    held = function if isinstance(function, dict) else call
    name = held.get("name") if held is not call or not isinstance(function, str) else function
    if not isinstance(name, str):
        raise RowRefused(f"{where}: must have a function name")
    arguments = held.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = dumps(arguments).decode("utf-8", "surrogatepass")
    return {
        "type": "function_call",
        "name": name,
        "arguments": arguments,
        "call_id": _text(call, "id", where),
    }


def _content(content: Any, where: str) -> Any:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RowRefused(f"{where}.content: must be a string or a list of parts")
    return [_part(part, f"{where}.content[{place}]") for place, part in enumerate(content)]


def _part(part: Any, where: str) -> Json:
    if not isinstance(part, dict):
        raise RowRefused(f"{where}: must be an object")
    if isinstance(part.get("text"), str):
        return {"type": "input_text", "text": part["text"]}
    image = part.get("image_url", part.get("image"))
    url = image.get("url") if isinstance(image, dict) else image
    if part.get("type") in ("image_url", "image", "input_image") and isinstance(url, str):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    raise RowRefused(
        f"{where}: has the type {part.get('type')}, which can't be imported. Only texts "
        "and images with an address can be imported"
    )


def _text_of(content: Any, where: str) -> str:
    """A content as one text: tools and models of most programs say no more."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else None for part in content]
        if all(isinstance(text, str) for text in texts):
            return "".join(str(text) for text in texts)
    raise RowRefused(f"{where}.content: must be a string")


def _text(value: Json, key: str, where: str) -> str:
    found = value.get(key)
    if not isinstance(found, str):
        raise RowRefused(f"{where}.{key}: must be a string")
    return found


def _json(text: str, where: str) -> Any:
    try:
        return loads(text)
    except CodecError as error:
        raise RowRefused(f"{where}: not JSON: {error}") from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value
