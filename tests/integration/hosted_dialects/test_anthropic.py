"""The backend `anthropic` before a real server that speaks its API."""

from __future__ import annotations

from tests.integration.hosted_dialects.endpoint import (
    PNG,
    TOOL,
    Endpoint,
    ask,
    delta,
    message,
    serving,
    shape,
    start,
    streamed,
)

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
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
                ]},
                *_ANTHROPIC_OUTPUT,
                {"type": "function_call", "call_id": "odd id", "name": "add", "arguments": "{bad"},
                {"type": "function_call_output", "call_id": "toolu_1", "output": "2"},
                {"type": "function_call_output", "call_id": "odd id", "output": ""},
                {"role": "system", "content": "hurry"},
                {"role": "user", "content": "well?"},
            ],
            tools=[TOOL],
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
                    "type": "base64", "media_type": "image/png", "data": PNG}},
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
        "tools": [{"name": "add", "description": "adds", "input_schema": TOOL["parameters"]}],
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
    begun = message(stop="end_turn") | {"stop_reason": None}
    endpoint.answers = [
        message(*content, stop="tool_use"),
        [
            {"type": "message_start", "message": begun},
            {"type": "ping"},
            start(0, {"type": "thinking", "thinking": "", "signature": ""}),
            delta(0, "thinking_delta", thinking="Hm — "),
            delta(0, "thinking_delta", thinking="ünï"),
            delta(0, "signature_delta", signature="c2ln"),
            {"type": "content_block_stop", "index": 0},
            start(1, _REDACTED),
            start(2, {"type": "text", "text": ""}),
            delta(2, "text_delta", text="one"),
            start(3, {"type": "text", "text": ""}),
            delta(3, "text_delta", text="two"),
            start(4, {**_USE, "input": {}}),
            delta(4, "input_json_delta", partial_json='{"a"'),
            delta(4, "input_json_delta", partial_json=":1}"),
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


async def test_reasoning_of_another_model_can_be_omitted(endpoint: Endpoint) -> None:
    endpoint.answers = [message({"type": "text", "text": "ok"})]
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "x"}]}
    async with serving(endpoint, "anthropic", unsigned_reasoning="omit", max_tokens=99) as service:
        await ask(service, input=[{"role": "user", "content": "hi"}, thought])
    body = endpoint.requests[0][2]
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert body["max_tokens"] == 99
