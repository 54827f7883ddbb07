"""Gemini's contents as Responses items. Pure.

A user's function responses become separate items, and the user's other parts become messages around
them. A model's parts become items in their order; consecutive texts become one message.

Older programs send calls and responses without ids. A call without an id gets the minted id in its
signature or, without a signature, an id from its place among the calls. A response without an id
answers the first call of its name that has no answer yet.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from gymmesh_agent.gateway.dialects.gemini.keys import camel_keys
from gymmesh_agent.gateway.dialects.gemini.signatures import NO_SIGNATURE, minted_in
from gymmesh_agent.gateway.dialects.reading import (
    Draft,
    UnreadableRequest,
    a_list,
    a_text,
    an_object,
    shown,
)
from gymmesh_agent.gateway.request import Json
from gymmesh_responses import dumps_clean

_ROLES: Final = {"user": "user", "function": "user", "tool": "user", "model": "model"}
# Clients may write either alphabet of Base64; data URLs have one.
_STANDARD: Final = str.maketrans("-_", "+/")


def read_system(draft: Draft, value: object) -> None:
    """Add the system text."""
    if value is None:
        return
    if isinstance(value, str):
        value = {"parts": [{"text": value}]}
    place = "systemInstruction"
    parts = [_spoken_part(part, where) for part, where in _parts(an_object(value, place), place)]
    if parts:
        draft.items.append({"type": "message", "role": "system", "content": _joined(parts)})


def read_contents(draft: Draft, contents: list[Any]) -> None:
    """Add the contents to the draft's items."""
    reader = _Contents(draft)
    for index, content in enumerate(contents):
        place = f"contents[{index}]"
        given = an_object(content, place)
        role = given.get("role") or "user"
        whose = _ROLES.get(role) if isinstance(role, str) else None
        if whose is None:
            raise UnreadableRequest(f"{place} has an unknown role {shown(role)}")
        if whose == "model":
            reader.model(given, place)
        else:
            reader.user(given, place)


class _Contents:
    """Adds contents to a draft, and assigns responses without ids to their calls."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._calls = 0
        # By name, the ids of calls without an answer, in order.
        self._open: dict[str, OrderedDict[str, None]] = {}

    def user(self, content: Json, place: str) -> None:
        said: list[Json] = []
        for part, where in _parts(content, place):
            if isinstance(part.get("functionResponse"), dict):
                self._close("user", said)
                said = []
                self._response(camel_keys(part["functionResponse"]), f"{where}.functionResponse")
            else:
                said.append(_spoken_part(part, where))
        self._close("user", said)

    def model(self, content: Json, place: str) -> None:
        texts: list[Json] = []
        for part, where in _parts(content, place):
            text = part.get("text")
            signature = _signature(part)
            if isinstance(text, str) and part.get("thought") is not True:
                if signature and minted_in(signature) is None:
                    self._close("assistant", texts)
                    texts = []
                    self._add(_reasoning("", signature))
                texts.append({"type": "output_text", "text": text, "annotations": []})
                continue
            self._close("assistant", texts)
            texts = []
            if isinstance(part.get("functionCall"), dict):
                self._call(camel_keys(part["functionCall"]), signature, f"{where}.functionCall")
            elif part.get("thought") is True:
                self._add(_reasoning(text if isinstance(text, str) else "", signature))
            else:
                self._add({"type": "gemini_part", "part": part})
        self._close("assistant", texts)

    def _add(self, item: Json) -> None:
        self._draft.items.append(item)

    def _close(self, role: str, parts: list[Json]) -> None:
        if parts:
            content = _joined(parts) if role == "user" else parts
            self._add({"type": "message", "role": role, "content": content})

    def _call(self, call: Json, signature: str, place: str) -> None:
        name = a_text(call.get("name"), f"{place}.name")
        ours = minted_in(signature) if signature else None
        if signature and ours is None:
            self._add(_reasoning("", signature))
        self._calls += 1
        call_id: str = ours or f"call_{self._calls}"
        if isinstance(call.get("id"), str) and call["id"]:
            call_id = call["id"]
        args = call.get("args")
        self._open.setdefault(name, OrderedDict())[call_id] = None
        self._add(
            {
                "type": "function_call",
                "call_id": call_id,
                "name": name,
                "arguments": dumps_clean({} if args is None else args).decode(),
                "status": "completed",
            }
        )

    def _response(self, response: Json, place: str) -> None:
        name = a_text(response.get("name"), f"{place}.name")
        waiting = self._open.get(name) or OrderedDict()
        given = response.get("id")
        if isinstance(given, str) and given:
            call_id = given
            waiting.pop(call_id, None)
        else:
            call_id = waiting.popitem(last=False)[0] if waiting else f"call_{name}"
        made: Json = {"type": "function_call_output", "call_id": call_id}
        made.update(_answer(response, place))
        self._add(made)


def _answer(response: Json, place: str) -> Json:
    """A tool's answer: the text under `output` or `error` if there is nothing else, otherwise
    the whole object as JSON; then the images.
    """
    value = response.get("response")
    said = an_object({} if value is None else value, f"{place}.response")
    made: Json = {}
    if said.keys() == {"output"} and isinstance(said["output"], str):
        text = said["output"]
    elif said.keys() == {"error"} and isinstance(said["error"], str):
        text = said["error"]
        made["status"] = "incomplete"  # Responses has no other word for a tool that failed
    else:
        text = dumps_clean(said).decode()
    parts = [_spoken_part(part, where) for part, where in _parts(response, place)]
    made["output"] = [{"type": "input_text", "text": text}, *parts] if parts else text
    return made


def _parts(content: Json, place: str) -> list[tuple[Json, str]]:
    value = content.get("parts")
    given = [] if value is None else a_list(value, f"{place}.parts")
    return [
        (camel_keys(an_object(part, f"{place}.parts[{index}]")), f"{place}.parts[{index}]")
        for index, part in enumerate(given)
    ]


def _spoken_part(part: Json, place: str) -> Json:
    """A part that is not a function's. A part of an unknown kind is passed to the model service
    unchanged.
    """
    if isinstance(part.get("text"), str):
        return {"type": "input_text", "text": part["text"]}
    if isinstance(part.get("inlineData"), dict):
        data = camel_keys(part["inlineData"])
        media = a_text(data.get("mimeType"), f"{place}.inlineData.mimeType")
        raw = a_text(data.get("data"), f"{place}.inlineData.data").translate(_STANDARD)
        return _medium(media, f"data:{media};base64,{raw}")
    if isinstance(part.get("fileData"), dict):
        data = camel_keys(part["fileData"])
        url = a_text(data.get("fileUri"), f"{place}.fileData.fileUri")
        if str(data.get("mimeType")).startswith("image/"):
            return {"type": "input_image", "image_url": url}
        return {"type": "input_file", "file_url": url}
    return {"type": "gemini_part", "part": part}


def _medium(media: str, url: str) -> Json:
    if media.startswith("image/"):
        return {"type": "input_image", "image_url": url}
    return {"type": "input_file", "filename": "file", "file_data": url}


def _joined(parts: list[Json]) -> str | list[Json]:
    """One text as text, anything else as parts."""
    if len(parts) == 1 and parts[0]["type"] == "input_text":
        text: str = parts[0]["text"]
        return text
    return parts


def _signature(part: Json) -> str:
    value = part.get("thoughtSignature")
    return value if isinstance(value, str) and value not in NO_SIGNATURE else ""


def _reasoning(text: str, signature: str) -> Json:
    """Reasoning with its signature. A signature of the gateway becomes the item's id; another
    endpoint's becomes the encrypted content.
    """
    made: Json = {"type": "reasoning", "summary": []}
    if text:
        made["content"] = [{"type": "reasoning_text", "text": text}]
    if signature:
        ours = minted_in(signature)
        made["id" if ours else "encrypted_content"] = ours or signature
    return made
