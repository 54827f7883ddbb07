"""Items: the elements of a conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.content import UNKNOWN_KIND, parts_init, write_opaque, write_parts
from gymmesh_responses.errors import CodecError
from gymmesh_responses.fields import (
    Fit,
    Init,
    each,
    fill,
    opaque,
    put,
    put_overlay,
    require_list,
    write_each,
)
from gymmesh_responses.jsonio import (
    JsonSource,
    JsonValue,
    Unpaired,
    bytes_to_text,
    read,
    text_to_bytes,
    write,
)


def item_from_json(source: JsonSource) -> pb.Item:
    """Read one item; anything that the contract has no kind for becomes an OpaqueItem.

    Raises:
        CodecError: not JSON, or nested too deeply.
    """
    return pb.Item(**item_init(read(source)))


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
    inits = each(item_init, require_list(read(source), "items"))
    return [pb.Item(**init) for init in inits]


def items_to_json(items: Iterable[pb.Item]) -> bytes:
    """Write items as a JSON array; raises as `item_to_json`."""
    return write(items_to_list(items))


def items_to_list(items: Iterable[pb.Item]) -> list[JsonValue]:
    """Items as parsed JSON; raises as `item_to_json`."""
    return write_each(item_to_dict, items)


def item_to_dict(item: pb.Item) -> JsonValue:
    """One item as parsed JSON: a dict, or whatever stood in the place of an item.

    Raises:
        CodecError: no kind is set, or a field holds what JSON cannot.
    """
    kind = item.WhichOneof("kind")
    if kind is None:
        raise CodecError(UNKNOWN_KIND)
    return _WRITERS[kind](getattr(item, kind))


def item_init(item: JsonValue) -> Init:
    """Read one item."""
    if type(item) is dict:
        kind = item.get("type")
        if type(kind) is str:
            if kind in _EXACT:
                init = fill(item, {}, _EXACT[kind], _FITS[kind])
                del init["type"]
                return {kind: init}
        elif "role" in item and "type" not in item:
            init = fill(item, {"type_omitted": True}, _EXACT["message"], _FITS["message"])
            return {"message": init}
    return opaque(item)


def _content(value: JsonValue, init: Init) -> bool:
    if type(value) is str:
        init["text"] = value
    elif type(value) is list:
        init["parts"] = parts_init(value)
    else:
        return False
    return True


def _arguments(value: JsonValue, init: Init) -> bool:
    if type(value) is not str and type(value) is not Unpaired:
        return False
    init["arguments"] = text_to_bytes(value)
    return True


def _output(value: JsonValue, init: Init) -> bool:
    if type(value) is list:
        init["parts"] = parts_init(value)
    elif type(value) is str or type(value) is Unpaired:
        init["text"] = text_to_bytes(value)
    else:
        return False
    return True


def _texts(field: str, part_type: str) -> Fit:
    def fit(value: JsonValue, init: Init) -> bool:
        if type(value) is not list:
            return False
        texts = []
        for part in value:
            if type(part) is not dict or len(part) != 2 or part.get("type") != part_type:
                return False
            text = part.get("text")
            if type(text) is not str:
                return False
            texts.append(text)
        init[field] = {"texts": texts}
        return True

    return fit


_EXACT: dict[str, dict[str, type]] = {
    "message": {"type": str, "id": str, "role": str, "status": str},
    "function_call": {"type": str, "id": str, "call_id": str, "name": str, "status": str},
    "function_call_output": {"type": str, "id": str, "call_id": str, "status": str},
    "reasoning": {"type": str, "id": str, "encrypted_content": str, "status": str},
}
_FITS: dict[str, dict[str, Fit]] = {
    "message": {"content": _content},
    "function_call": {"arguments": _arguments},
    "function_call_output": {"output": _output},
    "reasoning": {
        "summary": _texts("summary", "summary_text"),
        "content": _texts("content", "reasoning_text"),
    },
}


def _write_message(message: pb.Message) -> dict[str, JsonValue]:
    # As `put` would, written out: there are as many of these as all other items together.
    out: dict[str, JsonValue] = {} if message.type_omitted else {"type": "message"}
    value = message.id
    if value or message.HasField("id"):
        out["id"] = value
    value = message.role
    if value or message.HasField("role"):
        out["role"] = value
    value = message.status
    if value or message.HasField("status"):
        out["status"] = value
    content = message.WhichOneof("content")
    if content == "parts":
        try:
            out["content"] = write_parts(message.parts)
        except CodecError as error:
            raise error.within("content") from None
    elif content == "text":
        out["content"] = message.text
    overlay = message.overlay_json
    return put_overlay(out, overlay) if overlay else out


def _write_function_call(call: pb.FunctionCall) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {"type": "function_call"}
    put(out, call, ("id", "call_id", "name", "status"))
    arguments = call.arguments
    if arguments or call.HasField("arguments"):
        try:
            out["arguments"] = bytes_to_text(arguments)
        except CodecError as error:
            raise error.within("arguments") from None
    overlay = call.overlay_json
    return put_overlay(out, overlay) if overlay else out


def _write_function_call_output(output: pb.FunctionCallOutput) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {"type": "function_call_output"}
    put(out, output, ("id", "call_id", "status"))
    kind = output.WhichOneof("output")
    if kind is not None:
        try:
            if kind == "text":
                out["output"] = bytes_to_text(output.text)
            else:
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
