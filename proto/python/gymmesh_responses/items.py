"""Items: the elements of a conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.content import UNKNOWN_KIND, fill_part, write_opaque, write_parts
from gymmesh_responses.errors import CodecError
from gymmesh_responses.fields import (
    fill_each,
    fill_opaque,
    put,
    put_overlay,
    require_list,
    take,
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
        CodecError: no kind is set, or a field holds what JSON cannot.
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
    values: list[JsonValue] = []
    try:
        # As `write_each` and `item_to_dict` would, written out: this is done for every request.
        for item in items:
            kind = _KIND_OF(item, "kind")
            if kind is None:
                raise CodecError(UNKNOWN_KIND)
            values.append(_WRITERS[kind](getattr(item, kind)))
    except CodecError as error:
        raise error.within(len(values)) from None
    return values


def item_to_dict(item: pb.Item) -> JsonValue:
    """One item as parsed JSON: a dict, or whatever stood in the place of an item.

    Raises:
        CodecError: no kind is set, or a field holds what JSON cannot.
    """
    kind = _KIND_OF(item, "kind")
    if kind is None:
        raise CodecError(UNKNOWN_KIND)
    return _WRITERS[kind](getattr(item, kind))


def fill_item(item: pb.Item, value: JsonValue) -> None:
    """Read one item."""
    kind = None
    if type(value) is dict:
        kind = value.get("type")
        if (kind == "message" and _fill_usual_message(item, value)) or (
            kind == "function_call" and _fill_usual_call(item, value)
        ):
            return
        rest = value.copy()
        rest.pop("type", None)
        if kind is None and "role" in value and "type" not in value:
            kind = "message"
            item.message.type_omitted = True
    if type(kind) is not str or kind not in _FILLERS:
        fill_opaque(item.opaque, value)
        return
    message = getattr(item, kind)
    _FILLERS[kind](message, rest)
    if rest:
        message.overlay_json = store(rest)
    elif len(value) == 1:
        message.SetInParent()  # with no field set, only this says which kind it is


def _fill_usual_message(item: pb.Item, value: dict[str, JsonValue]) -> bool:
    """Reads a message as models write it, with these keys and no others; False for any other."""
    if len(value) != 5:
        return False
    try:
        name, role, status, content = _MESSAGE_KEYS(value)
    except KeyError:
        return False
    if not (type(name) is type(role) is type(status) is str and type(content) is list):
        return False
    message = item.message
    message.id = name
    message.role = role
    message.status = status
    _fill_parts(message.parts, content, "content")
    return True


def _fill_usual_call(item: pb.Item, value: dict[str, JsonValue]) -> bool:
    """Reads a call as models write it, with these keys and no others; False for any other."""
    if len(value) != 6:
        return False
    try:
        name, call_id, tool, arguments, status = _CALL_KEYS(value)
    except KeyError:
        return False
    if not (type(name) is type(call_id) is type(tool) is type(arguments) is type(status) is str):
        return False
    call = item.function_call
    call.id = name
    call.call_id = call_id
    call.name = tool
    call.arguments = arguments.encode()
    call.status = status
    return True


def _fill_message(message: pb.Message, rest: dict[str, JsonValue]) -> None:
    take(rest, message, ("id", "role", "status"))
    content = rest.get("content")
    if type(content) is list:
        _fill_parts(message.parts, rest.pop("content"), "content")
    elif type(content) is str:
        message.text = rest.pop("content")


def _fill_function_call(call: pb.FunctionCall, rest: dict[str, JsonValue]) -> None:
    take(rest, call, ("id", "call_id", "name", "status"))
    arguments = rest.get("arguments")
    if type(arguments) is str or type(arguments) is Unpaired:
        call.arguments = text_to_bytes(rest.pop("arguments"))


def _fill_function_call_output(output: pb.FunctionCallOutput, rest: dict[str, JsonValue]) -> None:
    take(rest, output, ("id", "call_id", "status"))
    value = rest.get("output")
    if type(value) is list:
        _fill_parts(output.parts, rest.pop("output"), "output")
    elif type(value) is str or type(value) is Unpaired:
        output.text = text_to_bytes(rest.pop("output"))


def _fill_reasoning(reasoning: pb.Reasoning, rest: dict[str, JsonValue]) -> None:
    take(rest, reasoning, ("id", "encrypted_content", "status"))
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
    texts = []
    for part in parts:
        if type(part) is not dict or len(part) != 2 or part.get("type") != part_type:
            return
        text = part.get("text")
        if type(text) is not str:
            return
        texts.append(text)
    field.SetInParent()
    field.texts.extend(texts)
    del rest[name]


# For nearly all that models write. They need no copy, from which what has a field is taken out.
_MESSAGE_KEYS = itemgetter("id", "role", "status", "content")
_CALL_KEYS = itemgetter("id", "call_id", "name", "arguments", "status")
# Each takes what has a field out of the item's other keys.
_FILLERS: dict[str, Callable[[Any, dict[str, JsonValue]], None]] = {
    "message": _fill_message,
    "function_call": _fill_function_call,
    "function_call_output": _fill_function_call_output,
    "reasoning": _fill_reasoning,
}


# Of the class, since a message looks through the names of its fields to find its methods.
_KIND_OF: Final = pb.Item.WhichOneof
_MESSAGE_HAS: Final = pb.Message.HasField
_CALL_HAS: Final = pb.FunctionCall.HasField
_OUTPUT_HAS: Final = pb.FunctionCallOutput.HasField


# The writers of what rollouts are full of ask for their fields as `put` would, written out.
def _write_message(message: pb.Message) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {} if message.type_omitted else {"type": "message"}
    value = message.id
    if value or _MESSAGE_HAS(message, "id"):
        out["id"] = value
    value = message.role
    if value or _MESSAGE_HAS(message, "role"):
        out["role"] = value
    value = message.status
    if value or _MESSAGE_HAS(message, "status"):
        out["status"] = value
    value = message.text
    if value:
        out["content"] = value
    elif _MESSAGE_HAS(message, "parts"):
        try:
            out["content"] = write_parts(message.parts)
        except CodecError as error:
            raise error.within("content") from None
    elif _MESSAGE_HAS(message, "text"):
        out["content"] = ""
    overlay = message.overlay_json
    return put_overlay(out, overlay) if overlay else out


def _write_function_call(call: pb.FunctionCall) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {"type": "function_call"}
    value = call.id
    if value or _CALL_HAS(call, "id"):
        out["id"] = value
    value = call.call_id
    if value or _CALL_HAS(call, "call_id"):
        out["call_id"] = value
    value = call.name
    if value or _CALL_HAS(call, "name"):
        out["name"] = value
    value = call.status
    if value or _CALL_HAS(call, "status"):
        out["status"] = value
    arguments = call.arguments
    if arguments or _CALL_HAS(call, "arguments"):
        try:
            out["arguments"] = bytes_to_text(arguments)
        except CodecError as error:
            raise error.within("arguments") from None
    overlay = call.overlay_json
    return put_overlay(out, overlay) if overlay else out


def _write_function_call_output(output: pb.FunctionCallOutput) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {"type": "function_call_output"}
    value = output.id
    if value or _OUTPUT_HAS(output, "id"):
        out["id"] = value
    value = output.call_id
    if value or _OUTPUT_HAS(output, "call_id"):
        out["call_id"] = value
    value = output.status
    if value or _OUTPUT_HAS(output, "status"):
        out["status"] = value
    text = output.text
    try:
        if text or _OUTPUT_HAS(output, "text"):
            out["output"] = bytes_to_text(text)
        elif _OUTPUT_HAS(output, "parts"):
            out["output"] = write_parts(output.parts)
    except CodecError as error:
        raise error.within("output") from None
    overlay = output.overlay_json
    return put_overlay(out, overlay) if overlay else out


def _write_reasoning(reasoning: pb.Reasoning) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {"type": "reasoning"}
    put(out, reasoning, ("id", "encrypted_content", "status"))
    if reasoning.HasField("summary"):
        out["summary"] = _typed_texts("summary_text", reasoning.summary.texts)
    if reasoning.HasField("content"):
        out["content"] = _typed_texts("reasoning_text", reasoning.content.texts)
    return put_overlay(out, reasoning.overlay_json)


def _typed_texts(part_type: str, texts: Sequence[str]) -> list[JsonValue]:
    return [{"type": part_type, "text": text} for text in texts]


_WRITERS: dict[str, Callable[[Any], JsonValue]] = {
    "message": _write_message,
    "function_call": _write_function_call,
    "function_call_output": _write_function_call_output,
    "reasoning": _write_reasoning,
    "opaque": write_opaque,
}
