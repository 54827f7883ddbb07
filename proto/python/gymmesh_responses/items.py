"""Items: the elements of a conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.content import fill_part, write_parts
from gymmesh_responses.errors import CodecError
from gymmesh_responses.fields import (
    Writers,
    fill_each,
    fill_opaque,
    put,
    put_overlay,
    require_list,
    take,
    texts,
    under,
    write_kind,
    write_kinds,
    write_opaque,
)
from gymmesh_responses.jsonio import (
    JsonSource,
    JsonValue,
    Unpaired,
    bytes_to_text,
    read,
    store,
    text_to_bytes,
    write,
)


def item_from_json(source: JsonSource) -> pb.Item:
    """Read one item; anything that the contract has no kind for becomes an OpaqueItem.

    Raises:
        CodecError: not JSON, or nested too deeply.
    """
    item = pb.Item()
    fill_item(item, read(source))
    return item


def item_to_json(item: pb.Item) -> bytes:
    """Write one item as JSON.

    Raises:
        CodecError: no kind is set, or JSON can't represent a field's value.
    """
    return write(item_to_dict(item))


def items_from_json(source: JsonSource) -> list[pb.Item]:
    """Read an array of items.

    Raises:
        CodecError: not JSON, not an array, or nested too deeply.
    """
    values = require_list(read(source), "items")
    items: list[pb.Item] = []
    try:
        for value in values:
            item = pb.Item()
            fill_item(item, value)
            items.append(item)
    except CodecError as error:
        raise error.within(len(items)) from None
    return items


def items_to_json(items: Iterable[pb.Item]) -> bytes:
    """Write items as a JSON array; raises as `item_to_json`."""
    return write(items_to_list(items))


def items_to_list(items: Iterable[pb.Item]) -> list[JsonValue]:
    """Items as parsed JSON; raises as `item_to_json`."""
    return write_kinds(items, _WRITERS)


def item_to_dict(item: pb.Item) -> JsonValue:
    """One item as parsed JSON: a dict, or the value that was in the place of an item.

    Raises:
        CodecError: no kind is set, or JSON can't represent a field's value.
    """
    return write_kind(item, _WRITERS)


def fill_item(item: pb.Item, value: JsonValue) -> None:
    """Read one item."""
    kind = None
    if type(value) is dict:
        kind = value.get("type")
        if kind is None and "role" in value and "type" not in value:
            kind = "message"
            item.message.type_omitted = True
    if type(kind) is not str or kind not in _TEXTS:
        fill_opaque(item.opaque, value)
        return
    message = getattr(item, kind)
    rest = take(message, value, _TEXTS[kind])
    rest.pop("type", None)
    _FILLERS[kind](message, rest)
    if rest:
        message.overlay_json = store(rest)
    elif len(value) == 1:
        message.SetInParent()  # with no field set, only this says which kind it is


def _fill_message(message: pb.Message, rest: dict[str, JsonValue]) -> None:
    content = rest.get("content")
    if type(content) is list:
        _fill_parts(message.parts, rest.pop("content"), "content")
    elif type(content) is str:
        message.text = rest.pop("content")


def _fill_function_call(call: pb.FunctionCall, rest: dict[str, JsonValue]) -> None:
    if type(rest.get("arguments")) in _ANY_TEXT:
        call.arguments = text_to_bytes(rest.pop("arguments"))


def _fill_function_call_output(output: pb.FunctionCallOutput, rest: dict[str, JsonValue]) -> None:
    value = rest.get("output")
    if type(value) is list:
        _fill_parts(output.parts, rest.pop("output"), "output")
    elif type(value) in _ANY_TEXT:
        output.text = text_to_bytes(rest.pop("output"))


def _fill_reasoning(reasoning: pb.Reasoning, rest: dict[str, JsonValue]) -> None:
    _take_texts(rest, "summary", reasoning.summary, "summary_text")
    _take_texts(rest, "content", reasoning.content, "reasoning_text")


def _fill_parts(field: pb.ContentParts, values: list[JsonValue], name: str) -> None:
    """Read the list of content parts of that name, which may be empty."""
    if not values:
        field.SetInParent()  # with no part, only this says that there is a list
    fill_each(field.parts, values, name, fill_part)


def _take_texts(
    rest: dict[str, JsonValue], name: str, field: pb.ReasoningTexts, part_type: str
) -> None:
    """Move a list whose parts are all of this type and hold a text and no more."""
    parts = rest.get(name)
    if type(parts) is not list:
        return
    found = []
    for part in parts:
        if type(part) is not dict or len(part) != 2 or part.get("type") != part_type:
            return
        text = part.get("text")
        if type(text) is not str:
            return
        found.append(text)
    field.SetInParent()
    field.texts.extend(found)
    del rest[name]


# The fields of each kind that have the name of their key and hold text.
_TEXTS: Final = {
    "message": texts("id", "role", "status"),
    "function_call": texts("id", "call_id", "name", "status"),
    "function_call_output": texts("id", "call_id", "status"),
    "reasoning": texts("id", "encrypted_content", "status"),
}
# Each takes what else has a field out of the item's other keys.
_FILLERS: Final[dict[str, Callable[[Any, dict[str, JsonValue]], None]]] = {
    "message": _fill_message,
    "function_call": _fill_function_call,
    "function_call_output": _fill_function_call_output,
    "reasoning": _fill_reasoning,
}
_ANY_TEXT: Final = (str, Unpaired)


def _write_message(message: pb.Message) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {} if message.type_omitted else {"type": "message"}
    put(out, message, ("id", "role", "status"))
    content = message.WhichOneof("content")
    if content == "text":
        out["content"] = message.text
    elif content == "parts":
        out["content"] = under("content", write_parts, message.parts)
    return put_overlay(out, message.overlay_json)


def _write_function_call(call: pb.FunctionCall) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {"type": "function_call"}
    put(out, call, ("id", "call_id", "name", "status"))
    if call.HasField("arguments"):
        out["arguments"] = under("arguments", bytes_to_text, call.arguments)
    return put_overlay(out, call.overlay_json)


def _write_function_call_output(output: pb.FunctionCallOutput) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {"type": "function_call_output"}
    put(out, output, ("id", "call_id", "status"))
    content = output.WhichOneof("output")
    if content == "text":
        out["output"] = under("output", bytes_to_text, output.text)
    elif content == "parts":
        out["output"] = under("output", write_parts, output.parts)
    return put_overlay(out, output.overlay_json)


def _write_reasoning(reasoning: pb.Reasoning) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {"type": "reasoning"}
    put(out, reasoning, ("id", "encrypted_content", "status"))
    if reasoning.HasField("summary"):
        out["summary"] = _typed_texts("summary_text", reasoning.summary.texts)
    if reasoning.HasField("content"):
        out["content"] = _typed_texts("reasoning_text", reasoning.content.texts)
    return put_overlay(out, reasoning.overlay_json)


def _typed_texts(part_type: str, texts_of_parts: Sequence[str]) -> list[JsonValue]:
    return [{"type": part_type, "text": text} for text in texts_of_parts]


_WRITERS: Final[Writers] = {
    "message": _write_message,
    "function_call": _write_function_call,
    "function_call_output": _write_function_call_output,
    "reasoning": _write_reasoning,
    "opaque": write_opaque,
}
