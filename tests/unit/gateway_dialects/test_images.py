"""Images in every dialect and place: what a program sends is an `input_image`, or is refused."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from pydantic import TypeAdapter

from gymmesh_agent.gateway.dialects import DIALECTS
from gymmesh_responses import items_to_list
from tests.support.images import png_url
from tests.unit.gateway_dialects.requests import read

Json = dict[str, Any]

HELD = png_url(1)
DATA = HELD.partition(",")[2]
FAR = "https://example.org/cat.png"
URL = "image_url"

#: By dialect and form, the part that a program sends, and what it becomes.
FORMS: dict[str, dict[str, tuple[Json, Json]]] = {
    "responses": {
        "held": (
            {"type": "input_image", URL: HELD, "detail": "high"},
            {URL: HELD, "detail": "high"},
        ),
        "far": ({"type": "input_image", URL: FAR, "detail": "auto"}, {URL: FAR, "detail": "auto"}),
        "file": (
            {"type": "input_image", "file_id": "f-1", "detail": "auto"},
            {"file_id": "f-1", "detail": "auto"},
        ),
    },
    "chat": {
        "held": ({"type": URL, URL: {"url": HELD, "detail": "low"}}, {URL: HELD, "detail": "low"}),
        "far": ({"type": URL, URL: {"url": FAR}}, {URL: FAR}),
    },
    "anthropic": {
        "held": (
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": DATA},
                "cache_control": {"type": "ephemeral"},
            },
            {URL: HELD},
        ),
        "far": ({"type": "image", "source": {"type": "url", "url": FAR}}, {URL: FAR}),
        "file": (
            {"type": "image", "source": {"type": "file", "file_id": "f-1"}},
            {"file_id": "f-1"},
        ),
    },
    "gemini": {
        "held": ({"inlineData": {"mimeType": "image/png", "data": DATA}}, {URL: HELD}),
        "held, in snake case": (
            {"inline_data": {"mime_type": "image/png", "data": DATA}},
            {URL: HELD},
        ),
        "held, in base64 for URLs": (
            {"inlineData": {"mimeType": "image/png", "data": DATA.replace("+", "-")}},
            {URL: HELD},
        ),
        "far": ({"fileData": {"mimeType": "image/png", "fileUri": FAR}}, {URL: FAR}),
    },
}


def in_user(dialect: str, part: Json) -> Json:
    """A request whose user says a text and an image."""
    match dialect:
        case "responses":
            said = [{"type": "input_text", "text": "see"}, part]
            return {"model": "m", "input": [{"role": "user", "content": said}]}
        case "gemini":
            return {"contents": [{"role": "user", "parts": [{"text": "see"}, part]}]}
    content = [{"type": "text", "text": "see"}, part]
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": content}]}


def in_tool(dialect: str, part: Json) -> Json:
    """A request in which a tool answers with a text and an image."""
    asked: Json = {"role": "user", "content": "look"}
    match dialect:
        case "responses":
            said = [{"type": "input_text", "text": "see"}, part]
            call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
            output = {"type": "function_call_output", "call_id": "c", "output": said}
            return {"model": "m", "input": [asked, call, output]}
        case "chat":
            function = {"name": "look", "arguments": "{}"}
            calls = [{"id": "c", "type": "function", "function": function}]
            content = [{"type": "text", "text": "see"}, part]
            answer = {"role": "tool", "tool_call_id": "c", "content": content}
            return {
                "model": "m",
                "messages": [asked, {"role": "assistant", "tool_calls": calls}, answer],
            }
        case "anthropic":
            use: Json = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
            content = [{"type": "text", "text": "see"}, part]
            result = {"type": "tool_result", "tool_use_id": "c", "content": content}
            messages = [
                asked,
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": [result]},
            ]
            return {"model": "m", "max_tokens": 9, "messages": messages}
    reply: Json = {"id": "c", "name": "look", "response": {"output": "see"}, "parts": [part]}
    return {
        "contents": [
            {"role": "user", "parts": [{"text": "look"}]},
            {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "look"}}]},
            {"role": "user", "parts": [{"functionResponse": reply}]},
        ]
    }


CASES = [
    pytest.param(dialect, place, form, id=f"{dialect}: {form}, {place.__name__}")
    for dialect in DIALECTS
    for place in (in_user, in_tool)
    for form in FORMS[dialect]
]


@pytest.mark.parametrize(("dialect", "place", "form"), CASES)
def test_an_image_is_an_input_image(dialect: str, place: Any, form: str) -> None:
    part, wanted = FORMS[dialect][form]
    item: Any = items_to_list(read(dialect, place(dialect, part)).items)[-1]
    said = item["content"] if place is in_user else item["output"]
    text, image = said
    assert text["text"] == "see"
    assert image == {"type": "input_image"} | wanted


@pytest.mark.parametrize("place", [in_user, in_tool])
@pytest.mark.parametrize("form", ["held", "far"])
def test_the_openai_package_sends_these_bodies(place: Any, form: str) -> None:
    """What is read above is what the package's types allow (in a tool's answer over Chat
    Completions they allow text alone, and programs send images all the same).
    """
    responses = importlib.import_module("openai.types.responses")
    body = place("responses", FORMS["responses"][form][0])
    kind = responses.ResponseInputParam
    TypeAdapter(kind).validate_python(body["input"])
    if place is in_user:
        chat = importlib.import_module("openai.types.chat")
        body = place("chat", FORMS["chat"][form][0])
        TypeAdapter(chat.ChatCompletionUserMessageParam).validate_python(body["messages"][0])
