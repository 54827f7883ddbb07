"""Plain text in and out of items, for code that needs no more than that."""

from __future__ import annotations

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.items import item_from_json, item_to_dict
from gymmesh_responses.jsonio import JsonValue, text_to_bytes

_TEXT_PARTS = frozenset(("input_text", "output_text"))


def text_of(item: pb.Item) -> str:
    """The plain text of a message or of a tool's answer: the texts of its parts, concatenated.

    Text parts only: images and refusals add nothing, and other kinds of item have
    no plain text (`""`).

    Raises:
        CodecError: the item's content holds what JSON cannot.
    """
    kind = item.WhichOneof("kind")
    if kind == "message":
        return message_text(item, item.message)
    return _text_by_json(item, "output") if kind == "function_call_output" else ""


def message_text(item: pb.Item, message: pb.Message) -> str:
    """`text_of` an item that is this message. Raises as that."""
    text = _plain_text(message)
    return _text_by_json(item, "content") if text is None else text


def _plain_text(message: pb.Message) -> str | None:
    """A message's text; None where only its JSON tells, as when part of it is in an overlay."""
    if message.overlay_json:
        return None
    if not message.HasField("parts"):
        return message.text
    text = ""
    for part in message.parts.parts:
        if part.HasField("output_text"):
            piece: pb.OutputText | pb.InputText = part.output_text
        elif part.HasField("input_text"):
            piece = part.input_text
        else:
            return None
        if piece.overlay_json:
            return None
        text += piece.text
    return text


def _text_by_json(item: pb.Item, key: str) -> str:
    document = item_to_dict(item)
    content = document.get(key) if type(document) is dict else None
    if type(content) is str:
        return content
    return "".join(map(_part_text, content)) if type(content) is list else ""


def new_message(role: str, text: str) -> pb.Item:
    """A message with plain text: `{"type": "message", "role": …, "content": "…"}`."""
    try:
        return pb.Item(message=pb.Message(role=role, text=text))
    except UnicodeEncodeError:
        return item_from_json({"type": "message", "role": role, "content": text})


def function_call_output(call_id: str, text: str) -> pb.Item:
    """A tool's answer as text, for the call that has this `call_id`."""
    try:
        output = pb.FunctionCallOutput(call_id=call_id, text=text_to_bytes(text))
    except UnicodeEncodeError:
        document = {"type": "function_call_output", "call_id": call_id, "output": text}
        return item_from_json(document)
    return pb.Item(function_call_output=output)


def _part_text(part: JsonValue) -> str:
    if type(part) is not dict or part.get("type") not in _TEXT_PARTS:
        return ""
    text = part.get("text")
    return text if type(text) is str else ""
