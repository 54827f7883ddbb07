"""The backend `gemini` before a real server that speaks its API."""

from __future__ import annotations

from typing import Any

from tests.integration.hosted_dialects.endpoint import (
    PNG,
    TOOL,
    Endpoint,
    ask,
    serving,
    shape,
    streamed,
)

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
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
                ]},
            ],
            tools=[TOOL],
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
    image = {"inlineData": {"mimeType": "image/png", "data": PNG}}
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
            {"name": "add", "description": "adds", "parametersJsonSchema": TOOL["parameters"]}]}],
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
