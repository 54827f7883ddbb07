"""How calls of the backends `anthropic` and `gemini` fail, end early or are refused."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_runtime.errors import MeshError
from tests.integration.hosted_dialects.endpoint import (
    Endpoint,
    ask,
    message,
    serving,
    start,
    streamed,
)


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
                start(0, {"type": "text", "text": "half"}),
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
