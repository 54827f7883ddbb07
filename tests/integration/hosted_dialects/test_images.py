"""Images go out in the shape of each API, from every place in a conversation, or not at all."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from pydantic import TypeAdapter

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_model import ModelConfig, ModelService
from gymmesh_runtime.config import Secret
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.integration.hosted_dialects.endpoint import Endpoint, ask, message
from tests.support.images import png_url

Json = dict[str, Any]

HELD = png_url(1)
DATA = HELD.partition(",")[2]
FAR = "https://example.org/cat.png"
SEE = {"type": "input_text", "text": "see"}
CHAT_ANSWER = {
    "id": "c-1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"},
                 "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}  # fmt: skip
RESPONSE = {
    "id": "r-1",
    "object": "response",
    "created_at": 1,
    "model": "m-1",
    "status": "completed",
    "output": [
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "ok", "annotations": []}]}
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}  # fmt: skip
GEMINI_ANSWER = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "ok"}]},
                    "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
}  # fmt: skip
ANSWERS = {
    "responses": RESPONSE,
    "openai": RESPONSE,
    "chat": CHAT_ANSWER,
    "vllm": CHAT_ANSWER,
    "anthropic": message({"type": "text", "text": "ok"}),
    "gemini": GEMINI_ANSWER,
}
#: By backend and form, the part that the endpoint gets; None: it is refused by name.
PARTS: dict[str, dict[str, Json | None]] = {
    "responses": {
        "held": {"type": "input_image", "image_url": HELD, "detail": "auto"},
        "far": {"type": "input_image", "image_url": FAR, "detail": "auto"},
        "file": {"type": "input_image", "file_id": "f-1", "detail": "auto"},
    },
    "chat": {
        "held": {"type": "image_url", "image_url": {"url": HELD, "detail": "auto"}},
        "far": {"type": "image_url", "image_url": {"url": FAR, "detail": "auto"}},
        "file": None,
    },
    "anthropic": {
        "held": {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": DATA},
        },
        "far": {"type": "image", "source": {"type": "url", "url": FAR}},
        "file": None,
    },
    "gemini": {
        "held": {"inlineData": {"mimeType": "image/png", "data": DATA}},
        "far": None,
        "file": None,
    },
}
PARTS |= {"openai": PARTS["responses"], "vllm": PARTS["chat"]}
SENT: dict[str, Json] = {
    "held": {"type": "input_image", "image_url": HELD, "detail": "auto"},
    "far": {"type": "input_image", "image_url": FAR, "detail": "auto"},
    "file": {"type": "input_image", "file_id": "f-1", "detail": "auto"},
}


def spoken(part: Json) -> list[Json]:
    return [{"role": "user", "content": [SEE, part]}]


def returned(part: Json) -> list[Json]:
    return [
        {"role": "user", "content": "look"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [SEE, part]},
    ]


def spoken_there(backend: str, body: Json) -> Any:
    """The parts of the user's message, as the endpoint got them."""
    if backend == "gemini":
        return body["contents"][0]["parts"]
    return body["input" if backend in ("responses", "openai") else "messages"][0]["content"]


def returned_there(backend: str, body: Json) -> Any:
    """The parts of what the tool returned."""
    if backend in ("responses", "openai"):
        return body["input"][-1]["output"]
    if backend == "anthropic":
        (result,) = body["messages"][-1]["content"]
        assert result["tool_use_id"] == "c1"
        return result["content"]
    if backend == "gemini":
        answer = body["contents"][-1]["parts"][0]["functionResponse"]
        return [{"text": answer["response"]["output"]}, *answer["parts"]]
    tool, shown = body["messages"][-2:]
    assert (tool["role"], tool["tool_call_id"], tool["content"]) == ("tool", "c1", "see")
    assert shown["role"] == "user"
    told, *images = shown["content"]
    assert told == {"type": "text", "text": "Shown by look:"}
    return [{"type": "text", "text": "see"}, *images]


CASES = [
    pytest.param(backend, form, asked, there, id=f"{backend}: {form}, {asked.__name__}")
    for backend in ANSWERS
    for form in SENT
    for asked, there in ((spoken, spoken_there), (returned, returned_there))
]


async def service(endpoint: Endpoint, backend: str, **more: Any) -> ModelService:
    suffix = "" if backend in ("anthropic", "gemini") else "/v1"
    config = ModelConfig(
        backend=backend, url=endpoint.url + suffix, model="m-1", max_retries=0, **more
    )
    opened = ModelService(config, "policy", "policy-0")
    await opened.open(PeerDirectory())
    return opened


@pytest.mark.parametrize(("backend", "form", "asked", "there"), CASES)
async def test_an_image_has_its_apis_shape(
    endpoint: Endpoint, backend: str, form: str, asked: Any, there: Any
) -> None:
    endpoint.answers = [ANSWERS[backend]] * 9  # some ask more than once what the server can
    opened = await service(endpoint, backend, api_key=Secret("key-1"))
    before = len(endpoint.requests)
    try:
        wanted = PARTS[backend][form]
        if wanted is None:
            with pytest.raises(MeshError) as caught:
                await ask(opened, input=asked(SENT[form]))
            assert caught.value.reason == errors.ERROR_REASON_PARAMETER_UNSUPPORTED
            assert "[1]." in caught.value.metadata["parameter"]
            assert len(endpoint.requests) == before
            return
        await ask(opened, input=asked(SENT[form]))
    finally:
        await opened.close()
    body = endpoint.requests[-1][2]
    text, image = there(backend, body)
    assert text.get("text") == "see"
    assert image == wanted
    _check_types(backend, body)


def _check_types(backend: str, body: Json) -> None:
    """The openai package's own types take the body."""
    if backend in ("responses", "openai"):
        kind = importlib.import_module("openai.types.responses").ResponseInputParam
        TypeAdapter(kind).validate_python(body["input"])
    elif backend in ("chat", "vllm"):
        one = importlib.import_module("openai.types.chat").ChatCompletionMessageParam
        for written in body["messages"]:
            TypeAdapter(one).validate_python(written)


async def test_a_chat_endpoint_may_take_images_in_tool_messages(endpoint: Endpoint) -> None:
    endpoint.answers = [CHAT_ANSWER]
    opened = await service(endpoint, "chat", options={"tool_images": "tool"})
    try:
        await ask(opened, input=returned(SENT["held"]))
    finally:
        await opened.close()
    (tool,) = endpoint.requests[0][2]["messages"][-1:]
    assert tool["role"] == "tool"
    assert tool["content"] == [{"type": "text", "text": "see"}, PARTS["chat"]["held"]]


@pytest.mark.parametrize("backend", ANSWERS)
@pytest.mark.parametrize("asked", [spoken, returned])
async def test_a_model_of_text_alone_refuses_images(
    endpoint: Endpoint, backend: str, asked: Any
) -> None:
    endpoint.answers = [ANSWERS[backend]] * 9
    opened = await service(endpoint, backend, images=False, api_key=Secret("key-1"))
    try:
        await ask(opened, input="hi")  # text goes through
        count = len(endpoint.requests)
        with pytest.raises(MeshError) as caught:
            await ask(opened, input=asked(SENT["held"]))
        assert len(endpoint.requests) == count
    finally:
        await opened.close()
    assert caught.value.reason == errors.ERROR_REASON_PARAMETER_UNSUPPORTED
    assert "the model reads only text" in caught.value.message
    place = f"input[{len(asked(SENT['held'])) - 1}]"
    assert caught.value.metadata["parameter"] == place
