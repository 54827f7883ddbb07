from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given

from gymmesh_model.convert import ChatOptions, settings_to_chat, to_chat
from gymmesh_runtime.errors import MeshError
from tests.unit.model import documents

Json = dict[str, Any]

TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": None}


def refusal_of(params: Json) -> MeshError:
    with pytest.raises(MeshError) as caught:
        to_chat({"input": "hi", **params})
    return caught.value


def test_a_whole_request() -> None:
    body = to_chat(
        {
            "model": "m",
            "instructions": "be brief",
            "input": [
                {"role": "developer", "content": "rules"},
                {
                    "type": "message",
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "what is this?"},
                        {"type": "input_image", "image_url": "data:,x", "detail": "low"},
                    ],
                },
            ],
            "tools": [TOOL],
            "tool_choice": {"type": "function", "name": "add"},
            "parallel_tool_calls": False,
            "temperature": 0.5,
            "max_output_tokens": 9,
            "reasoning": {"effort": "low", "summary": None},
            "text": {
                "format": {"type": "json_schema", "name": "a", "schema": {}, "strict": True},
                "verbosity": "low",
            },
            "top_logprobs": 2,
            "top_k": 5,
        },
        seed=7,
    )
    assert body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief\n\nrules"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "what is this?"},
                    {"type": "image_url", "image_url": {"url": "data:,x", "detail": "low"}},
                ],
            },
        ],
        "tools": [
            {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
        ],
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "max_tokens": 9,
        "reasoning_effort": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "a", "schema": {}, "strict": True},
        },
        "verbosity": "low",
        "logprobs": True,
        "top_logprobs": 2,
        "top_k": 5,
        "seed": 7,
    }


@pytest.mark.parametrize("next_one", [[], [{"role": "user", "content": "and?"}]])
def test_an_answer_of_reasoning_alone_has_empty_text(next_one: list[Json]) -> None:
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    messages = to_chat({"input": [reasoning, *next_one]})["messages"]
    assert messages[0] == {"role": "assistant", "content": "", "reasoning_content": "hm"}


def test_one_model_call_is_one_assistant_message() -> None:
    items = [
        {"role": "user", "content": "2+3?"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "wait"}],
        },
        {"type": "function_call", "call_id": "a", "name": "add", "arguments": "{bad"},
        {"type": "function_call", "call_id": "b", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "5"},
        {"type": "function_call_output", "call_id": "b", "output": "6"},
    ]
    messages = to_chat({"input": items})["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "tool"]
    assert messages[1]["reasoning_content"] == "hm"
    assert messages[1]["content"] == "wait"
    calls = [(c["id"], c["function"]["arguments"]) for c in messages[1]["tool_calls"]]
    assert calls == [("a", '{"invalid_arguments":"{bad"}'), ("b", "{}")]
    assert messages[2] == {"role": "tool", "tool_call_id": "a", "content": "5"}


def test_reasoning_between_calls_of_one_answer_stays_with_their_outputs() -> None:
    def call(call_id: str) -> Json:
        return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}

    def thought(text: str) -> Json:
        return {"type": "reasoning", "content": [{"type": "reasoning_text", "text": text}]}

    items = [{"role": "user", "content": "q"}, thought("1"), call("a"), thought("2"), call("b")]
    outputs = [{"type": "function_call_output", "call_id": i, "output": "x"} for i in "ab"]
    answered = to_chat({"input": items + outputs})["messages"]
    assert [m["role"] for m in answered] == ["user", "assistant", "tool", "tool"]
    assert answered[1]["reasoning_content"] == "1\n\n2"
    half = [*items[:3], call("c"), *items[3:], *outputs]
    assert [m["role"] for m in to_chat({"input": half})["messages"]] == [
        m["role"] for m in answered
    ]
    unanswered = to_chat({"input": items})["messages"]
    assert [m["role"] for m in unanswered] == ["user", "assistant", "assistant"]


@pytest.mark.parametrize(
    ("params", "parameter"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"background": True}, "background"),
        ({"stream": True}, "stream"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["reasoning.encrypted_content"]}, "include[0]"),
        ({"tools": [TOOL, {"type": "web_search"}]}, "tools[1].type"),
        ({"tools": [TOOL], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"text": {"colour": 1}}, "text.colour"),
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
        ({"messages": []}, "messages"),
        ({"n": 2}, "n"),
        ({"max_tokens": 5, "max_output_tokens": 6}, "max_tokens"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": "x", "mood": 1}]}, "input[0].mood"),
        (
            {"input": [{"type": "reasoning", "summary": [], "encrypted_content": "x"}]},
            "input[0].encrypted_content",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_video"}]}]},
            "input[0].content[0].type",
        ),
        (
            {
                "input": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "input_image", "image_url": "u", "file_id": "f"},
                        ],
                    }
                ]
            },
            "input[0].content[0].file_id",
        ),
    ],
)
def test_what_chat_cannot_express_is_refused_by_name(params: Json, parameter: str) -> None:
    error = refusal_of(params)
    assert error.reason_name == "PARAMETER_UNSUPPORTED"
    assert error.metadata == {"parameter": parameter}
    assert parameter in error.message


@pytest.mark.parametrize(
    "params",
    [
        {"input": None},
        {"input": [3]},
        {"input": [{"role": "user"}]},
        {"input": [{"type": "function_call", "call_id": "a", "name": "f"}]},
        {"instructions": 3},
        {"tools": {}},
        {"tools": [], "tool_choice": "required"},
    ],
)
def test_what_is_no_request_is_invalid(params: Json) -> None:
    assert refusal_of(params).reason_name == "FIELD_INVALID"


def test_without_tools_nothing_is_said_about_them() -> None:
    params = {"input": "x", "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
    assert to_chat(params) == {"messages": [{"role": "user", "content": "x"}]}


def test_dialects() -> None:
    options = ChatOptions(
        max_tokens_key="max_completion_tokens", developer_role="developer", reasoning_key=None
    )
    items: list[Json] = [
        {"role": "developer", "content": "d"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"role": "assistant", "content": "a"},
    ]
    body = to_chat({"input": items, "max_output_tokens": 4}, options)
    assert body["max_completion_tokens"] == 4
    assert body["messages"] == [
        {"role": "developer", "content": "d"},
        {"role": "assistant", "content": "a"},
    ]


@given(documents.params)
def test_every_parameter_has_an_effect_or_is_at_its_default(params: Json) -> None:
    before = copy.deepcopy(params)
    body = to_chat(params)
    assert params == before
    for key in ("temperature", "top_p", "user", "top_k"):
        assert body.get(key) == params.get(key)
    assert body.get("max_tokens") == params.get("max_output_tokens")
    assert len(body.get("tools", [])) == len(params.get("tools", []))
    if params.get("tools"):
        assert body.get("parallel_tool_calls") == params.get("parallel_tool_calls")
    assert not {"metadata", "store", "include", "background", "truncation"} & set(body)


@given(documents.params)
def test_what_is_made_of_the_settings_once_serves_every_call(params: Json) -> None:
    shared = settings_to_chat(params)
    kept = copy.deepcopy(shared)
    for seed in (None, 3):
        assert to_chat(params, seed=seed, shared=shared) == to_chat(params, seed=seed)
    assert shared == kept
    assert "messages" not in shared


def test_a_parameter_that_is_what_the_input_becomes_is_refused() -> None:
    with pytest.raises(MeshError, match="messages") as caught:
        to_chat({"input": "hi", "messages": []})
    assert caught.value.reason_name == "PARAMETER_UNSUPPORTED"
