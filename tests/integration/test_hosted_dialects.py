"""The backends `anthropic` and `gemini` before a real server that speaks their API."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh_model import ModelConfig, ModelService
from gymmesh_responses import params_from_json, response_to_json
from gymmesh_runtime.config import Secret
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.support.ports import free_port

BOUND_S = 120.0
_PNG = base64.b64encode(b"\x89PNG tiny").decode()
_TOOL = {
    "type": "function",
    "name": "add",
    "description": "adds",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "strict": False,
}


class Endpoint:
    """Answers with the next of `answers`: a status and a document, or a list of events."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[Any] = []
        self.requests: list[tuple[str, Mapping[str, str], Any]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.path_qs, request.headers, await request.json()))
        answer = self.answers.pop(0)
        if isinstance(answer, tuple):
            return web.json_response(answer[1], status=answer[0])
        if isinstance(answer, dict):
            return web.json_response(answer)
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        for event in answer:
            data = json.dumps(event, ensure_ascii=False).encode()
            for place in range(0, len(data), 7):  # cut anywhere
                await stream.write((b"data: " if not place else b"") + data[place : place + 7])
            await stream.write(b"\r\n\r\n")
        return stream


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    found = Endpoint()
    app = web.Application()
    app.router.add_post("/{path:.*}", found.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", free_port()).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


@asynccontextmanager
async def serving(endpoint: Endpoint, backend: str, **options: Any) -> AsyncIterator[ModelService]:
    config = ModelConfig(
        backend=backend,
        url=endpoint.url,
        api_key=Secret("key-1"),
        model="m-1",
        max_retries=0,
        options=options,
    )
    service = ModelService(config, "policy", "policy-0")
    await service.open(PeerDirectory())
    try:
        yield service
    finally:
        await service.close()


async def ask(service: ModelService, **params: Any) -> Any:
    asked = model_pb2.CreateResponseRequest(params=params_from_json({"input": "hi", **params}))
    async with asyncio.timeout(BOUND_S):
        reply = await service.CreateResponse(asked, CallContext("CreateResponse"))
    return json.loads(response_to_json(reply.response))


async def streamed(service: ModelService, **params: Any) -> tuple[list[tuple[int, str, str]], Any]:
    call = model_pb2.CreateResponseRequest(params=params_from_json({"input": "hi", **params}))
    request = model_pb2.StreamResponseRequest(call=call)
    deltas: list[tuple[int, str, str]] = []
    response: Any = None
    async with asyncio.timeout(BOUND_S):
        async for frame in service.StreamResponse(request, CallContext("StreamResponse")):
            if frame.HasField("completed"):
                response = json.loads(response_to_json(frame.completed.response))
            else:
                kind = str(frame.delta.WhichOneof("delta"))
                piece, place = getattr(frame.delta, kind).decode(), frame.delta.output_index
                # How much comes at once is the service's affair.
                if deltas and deltas[-1][:2] == (place, kind):
                    piece = deltas.pop()[2] + piece
                deltas.append((place, kind, piece))
    return deltas, response


def shape(response: Any) -> list[Any]:
    """The output without ids and statuses."""
    dropped = ("id", "status", "annotations", "summary")
    plain = []
    for item in response["output"]:
        made = {key: value for key, value in item.items() if key not in dropped}
        if isinstance(made.get("content"), list):
            made["content"] = [
                {key: value for key, value in part.items() if key not in dropped}
                for part in made["content"]
            ]
        plain.append(made)
    return plain


def message(*content: Any, stop: str = "end_turn", **more: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": list(content),
        "stop_reason": stop,
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 5,
            "cache_creation_input_tokens": 2,
            "output_tokens": 7,
        },
        **more,
    }


_THINKING = {"type": "thinking", "thinking": "Hm — ünï", "signature": "c2ln"}
_REDACTED = {"type": "redacted_thinking", "data": "b3BhcXVl"}
_USE = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}}
_ANTHROPIC_OUTPUT = [
    {
        "type": "reasoning",
        "content": [{"type": "reasoning_text", "text": "Hm — ünï"}],
        "encrypted_content": "c2ln",
    },
    {"type": "reasoning", "content": [], "encrypted_content": "b3BhcXVl"},
    {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "output_text", "text": "one"},
            {"type": "output_text", "text": "two"},
        ],
    },
    {"type": "function_call", "call_id": "toolu_1", "name": "add", "arguments": '{"a":1}'},
]


async def test_anthropic_conversations_go_out_as_messages(endpoint: Endpoint) -> None:
    endpoint.answers = [message({"type": "text", "text": "ok"})]
    async with serving(endpoint, "anthropic") as service:
        response = await ask(
            service,
            instructions="be brief",
            input=[
                {"role": "developer", "content": "and kind"},
                {"role": "user", "content": [
                    {"type": "input_text", "text": "see"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{_PNG}"},
                ]},
                *_ANTHROPIC_OUTPUT,
                {"type": "function_call", "call_id": "odd id", "name": "add", "arguments": "{bad"},
                {"type": "function_call_output", "call_id": "toolu_1", "output": "2"},
                {"type": "function_call_output", "call_id": "odd id", "output": ""},
                {"role": "system", "content": "hurry"},
                {"role": "user", "content": "well?"},
            ],
            tools=[_TOOL],
            tool_choice="required",
            parallel_tool_calls=False,
            max_output_tokens=50,
            temperature=0.5,
            reasoning={"effort": "low"},
            text={"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}},
            metadata={"run": "1"},
            top_k=4,
        )  # fmt: skip
    ((path, headers, body),) = endpoint.requests
    assert path == "/v1/messages"
    assert headers["x-api-key"] == "key-1"
    assert headers["anthropic-version"] == "2023-06-01"
    odd = "call_" + b"odd id".hex()
    assert body == {
        "model": "m-1",
        "max_tokens": 50,
        "temperature": 0.5,
        "top_k": 4,
        "system": [{"type": "text", "text": "be brief"}, {"type": "text", "text": "and kind"}],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "see"},
                {"type": "image", "source": {
                    "type": "base64", "media_type": "image/png", "data": _PNG}},
            ]},
            {"role": "assistant", "content": [
                _THINKING, _REDACTED, {"type": "text", "text": "one"},
                {"type": "text", "text": "two"}, _USE,
                {"type": "tool_use", "id": odd, "name": "add",
                 "input": {"invalid_arguments": "{bad"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1",
                 "content": [{"type": "text", "text": "2"}]},
                {"type": "tool_result", "tool_use_id": odd},
                {"type": "text", "text": "hurry"},
                {"type": "text", "text": "well?"},
            ]},
        ],
        "tools": [{"name": "add", "description": "adds", "input_schema": _TOOL["parameters"]}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "output_config": {
            "effort": "low",
            "format": {"type": "json_schema", "schema": {"type": "object"}},
        },
    }  # fmt: skip
    assert response["status"] == "completed"
    assert response["usage"]["input_tokens"] == 17
    assert response["usage"]["input_tokens_details"]["cached_tokens"] == 5


async def test_an_anthropic_answer_becomes_items_whole_and_streamed(endpoint: Endpoint) -> None:
    content = [
        *(_THINKING, _REDACTED, {"type": "text", "text": "one"}, {"type": "text", "text": "two"}),
        _USE,
    ]
    start = message(stop="end_turn") | {"stop_reason": None}
    endpoint.answers = [
        message(*content, stop="tool_use"),
        [
            {"type": "message_start", "message": start},
            {"type": "ping"},
            _start(0, {"type": "thinking", "thinking": "", "signature": ""}),
            _delta(0, "thinking_delta", thinking="Hm — "),
            _delta(0, "thinking_delta", thinking="ünï"),
            _delta(0, "signature_delta", signature="c2ln"),
            {"type": "content_block_stop", "index": 0},
            _start(1, _REDACTED),
            _start(2, {"type": "text", "text": ""}),
            _delta(2, "text_delta", text="one"),
            _start(3, {"type": "text", "text": ""}),
            _delta(3, "text_delta", text="two"),
            _start(4, {**_USE, "input": {}}),
            _delta(4, "input_json_delta", partial_json='{"a"'),
            _delta(4, "input_json_delta", partial_json=":1}"),
            {
                "type": "message_delta",
                "delta": {"stop_reason": "tool_use", "stop_sequence": None},
                "usage": {"output_tokens": 9},
            },
            {"type": "message_stop"},
        ],
    ]
    async with serving(endpoint, "anthropic") as service:
        whole = await ask(service)
        deltas, response = await streamed(service)
    assert shape(whole) == shape(response) == _ANTHROPIC_OUTPUT
    assert response["usage"]["output_tokens"] == 9
    assert deltas == [
        (0, "reasoning", "Hm — ünï"),
        (2, "text", "onetwo"),
        (3, "arguments", '{"a":1}'),
    ]
    assert endpoint.requests[1][2]["stream"] is True


def _start(index: int, block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _delta(index: int, kind: str, **piece: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **piece}}


@pytest.mark.parametrize(
    ("backend", "answer", "reason"),
    [
        (
            "anthropic",
            (529, {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}),
            errors.ERROR_REASON_MODEL_SERVER_ERROR,
        ),
        (
            "anthropic",
            (400, {"error": {"type": "invalid_request_error", "message": "prompt is too long"}}),
            errors.ERROR_REASON_MODEL_CONTEXT_EXCEEDED,
        ),
        (
            "anthropic",
            {"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}},
            errors.ERROR_REASON_MODEL_RATE_LIMITED,
        ),
        ("anthropic", message(stop="pause_turn"), errors.ERROR_REASON_MODEL_SERVER_ERROR),
        ("anthropic", message({"type": "odd"}), errors.ERROR_REASON_MODEL_ANSWER_INVALID),
        ("anthropic", {"content": None}, errors.ERROR_REASON_MODEL_ANSWER_INVALID),
        (
            "gemini",
            (429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow"}}),
            errors.ERROR_REASON_MODEL_RATE_LIMITED,
        ),
        (
            "gemini",
            {"error": {"code": 503, "message": "busy"}},
            errors.ERROR_REASON_MODEL_SERVER_ERROR,
        ),
        ("gemini", {"candidates": []}, errors.ERROR_REASON_MODEL_ANSWER_INVALID),
        (
            "gemini",
            {"candidates": [{"content": {"parts": [{"odd": 1}]}, "finishReason": "STOP"}]},
            errors.ERROR_REASON_MODEL_ANSWER_INVALID,
        ),
    ],
)
async def test_failures_are_typed(
    endpoint: Endpoint, backend: str, answer: Any, reason: errors.ErrorReason.ValueType
) -> None:
    endpoint.answers = [answer]
    async with serving(endpoint, backend) as service:
        with pytest.raises(MeshError) as caught:
            await ask(service)
    assert caught.value.reason == reason
    assert "key-1" not in str(caught.value)


@pytest.mark.parametrize(
    ("backend", "answers"),
    [
        (
            "anthropic",
            [
                {"type": "message_start", "message": message()},
                _start(0, {"type": "text", "text": "half"}),
            ],
        ),
        ("gemini", [{"candidates": [{"content": {"parts": [{"text": "half"}]}}]}]),
    ],
)
async def test_a_stream_without_its_end_is_not_an_answer(
    endpoint: Endpoint, backend: str, answers: Any
) -> None:
    endpoint.answers = [answers]
    async with serving(endpoint, backend) as service:
        with pytest.raises(MeshError) as caught:
            await streamed(service)
    assert caught.value.reason == errors.ERROR_REASON_MODEL_ANSWER_INVALID


@pytest.mark.parametrize(
    ("backend", "answer", "details"),
    [
        (
            "anthropic",
            message({"type": "text", "text": "x"}, stop="max_tokens"),
            "max_output_tokens",
        ),
        ("anthropic", message({"type": "text", "text": ""}, stop="refusal"), "content_filter"),
        (
            "gemini",
            {"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "MAX_TOKENS"}]},
            "max_output_tokens",
        ),
        ("gemini", {"promptFeedback": {"blockReason": "SAFETY"}}, "content_filter"),
        ("gemini", {"candidates": [{"finishReason": "RECITATION"}]}, "content_filter"),
    ],
)
async def test_an_answer_that_was_cut_says_why(
    endpoint: Endpoint, backend: str, answer: Any, details: str
) -> None:
    endpoint.answers = [answer]
    async with serving(endpoint, backend) as service:
        response = await ask(service)
    assert (response["status"], response["incomplete_details"]["reason"]) == ("incomplete", details)
    assert response["output"][-1]["status"] == "incomplete"


@pytest.mark.parametrize(
    ("backend", "params", "place"),
    [
        ("anthropic", {"seed": 1}, "seed"),
        ("anthropic", {"text": {"verbosity": "low"}}, "text.verbosity"),
        ("anthropic", {"tools": [{"type": "web_search"}]}, "tools[0].type"),
        (
            "anthropic",
            {"input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]}]},
            "input[0]",
        ),
        (
            "anthropic",
            {"input": [{"role": "user", "content": [{"type": "input_audio"}]}]},
            "input[0].content[0].type",
        ),
        ("gemini", {"parallel_tool_calls": False}, "parallel_tool_calls"),
        ("gemini", {"include": ["x"]}, "include"),
        (
            "gemini",
            {"input": [{"role": "user", "content": [
                {"type": "input_image", "image_url": "https://example.com/a.png"}]}]},
            "input[0].content[0].image_url",
        ),
    ],
)  # fmt: skip
async def test_what_an_api_lacks_is_refused_by_name(
    endpoint: Endpoint, backend: str, params: Any, place: str
) -> None:
    async with serving(endpoint, backend) as service:
        with pytest.raises(MeshError) as caught:
            await ask(service, **params)
    assert caught.value.reason == errors.ERROR_REASON_PARAMETER_UNSUPPORTED
    assert caught.value.metadata["parameter"] == place
    assert endpoint.requests == []


async def test_reasoning_of_another_model_can_be_omitted(endpoint: Endpoint) -> None:
    endpoint.answers = [message({"type": "text", "text": "ok"})]
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "x"}]}
    async with serving(endpoint, "anthropic", unsigned_reasoning="omit", max_tokens=99) as service:
        await ask(service, input=[{"role": "user", "content": "hi"}, thought])
    body = endpoint.requests[0][2]
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert body["max_tokens"] == 99


_PARTS = [
    {"text": "Let me think", "thought": True, "thoughtSignature": "czA="},
    {"text": "Sure"},
    {"functionCall": {"id": "c1", "name": "add", "args": {"a": 1}}, "thoughtSignature": "czE="},
    {"functionCall": {"id": "c2", "name": "add", "args": {}}},
]
_GEMINI_OUTPUT = [
    {
        "type": "reasoning",
        "content": [{"type": "reasoning_text", "text": "Let me think"}],
        "encrypted_content": "czA=",
    },
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Sure"}],
    },
    {
        "type": "function_call",
        "call_id": "c1",
        "name": "add",
        "arguments": '{"a":1}',
        "thought_signature": "czE=",
    },
    {"type": "function_call", "call_id": "c2", "name": "add", "arguments": "{}"},
]
_USAGE = {
    "promptTokenCount": 10,
    "cachedContentTokenCount": 4,
    "candidatesTokenCount": 6,
    "thoughtsTokenCount": 3,
    "totalTokenCount": 19,
}


async def test_a_gemini_answer_becomes_items_and_goes_back_to_the_letter(
    endpoint: Endpoint,
) -> None:
    answer = {
        "candidates": [
            {"content": {"role": "model", "parts": _PARTS}, "finishReason": "STOP", "index": 0}
        ],
        "usageMetadata": _USAGE,
        "modelVersion": "m-1-001",
        "responseId": "r-1",
    }
    endpoint.answers = [answer, answer]
    async with serving(endpoint, "gemini") as service:
        first = await ask(service, input="hi", instructions="be brief")
        assert shape(first) == _GEMINI_OUTPUT
        await ask(
            service,
            input=[
                {"role": "user", "content": "hi"},
                *first["output"],
                {"type": "function_call_output", "call_id": "c1", "output": "2"},
                {"type": "function_call_output", "call_id": "c2", "output": [
                    {"type": "input_text", "text": "seen"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{_PNG}"},
                ]},
            ],
            tools=[_TOOL],
            tool_choice={"type": "function", "name": "add"},
            max_output_tokens=50,
            top_p=0.9,
            stop=["END"],
            reasoning={"effort": "low", "summary": "auto"},
            text={"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}},
            generationConfig={"candidateCount": 1},
        )  # fmt: skip
    assert first["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 19,
    }
    (path, headers, one), (_, _, body) = endpoint.requests
    assert path == "/v1beta/models/m-1:generateContent"
    assert headers["x-goog-api-key"] == "key-1"
    assert one["systemInstruction"] == {"parts": [{"text": "be brief"}]}
    image = {"inlineData": {"mimeType": "image/png", "data": _PNG}}
    assert body == {
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": _PARTS},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "c1", "name": "add", "response": {"output": "2"}}},
                {"functionResponse": {
                    "id": "c2", "name": "add", "response": {"output": "seen"}, "parts": [image]}},
            ]},
        ],
        "tools": [{"functionDeclarations": [
            {"name": "add", "description": "adds", "parametersJsonSchema": _TOOL["parameters"]}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["add"]}},
        "generationConfig": {
            "candidateCount": 1,
            "maxOutputTokens": 50,
            "topP": 0.9,
            "stopSequences": ["END"],
            "thinkingConfig": {"thinkingLevel": "low", "includeThoughts": True},
            "responseMimeType": "application/json",
            "responseJsonSchema": {"type": "object"},
        },
    }  # fmt: skip


async def test_a_gemini_answer_is_streamed(endpoint: Endpoint) -> None:
    def chunk(*parts: Any, **more: Any) -> dict[str, Any]:
        candidate = {"content": {"role": "model", "parts": list(parts)}, **more}
        return {"candidates": [candidate], "usageMetadata": _USAGE, "modelVersion": "m-1-001"}

    endpoint.answers = [
        [
            chunk({"text": "Let me ", "thought": True}),
            chunk({"text": "think", "thought": True, "thoughtSignature": "czA="}),
            chunk({"text": "Su"}),
            chunk({"text": "re"}, _PARTS[2]),
            chunk(_PARTS[3], finishReason="STOP"),
        ]
    ]
    async with serving(endpoint, "gemini") as service:
        deltas, response = await streamed(service)
    assert shape(response) == _GEMINI_OUTPUT
    assert endpoint.requests[0][0] == "/v1beta/models/m-1:streamGenerateContent?alt=sse"
    assert deltas == [
        (0, "reasoning", "Let me think"),
        (1, "text", "Sure"),
        (2, "arguments", '{"a":1}'),
        (3, "arguments", "{}"),
    ]
