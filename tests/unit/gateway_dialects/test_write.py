"""Answers are written as each API documents them, and a stream adds up to the whole answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_agent.gateway.dialects import DIALECTS
from gymmesh_agent.gateway.request import GatewayAnswer, GatewayRequest, Refusal, RefusalKind
from tests.unit.gateway_dialects import answers
from tests.unit.gateway_dialects.answers import answer_of, call, events, message, reasoning
from tests.unit.gateway_dialects.requests import cases, read

Json = dict[str, Any]

BODIES: dict[str, Json] = {
    "responses": {
        "model": "m",
        "input": "hi",
        "tools": [
            {
                "type": "namespace",
                "name": "mcp__files__",
                "tools": [{"type": "function", "name": "read"}],
            }
        ],
    },
    "chat": {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream_options": {"include_usage": True},
    },
    "anthropic": {
        "model": "m",
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [{"role": "user", "content": "hi"}],
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
    },
}
USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 6,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 16,
}


def whole(dialect: str, answer: GatewayAnswer, request: GatewayRequest | None = None) -> Json:
    written = DIALECTS[dialect].write(request or read(dialect, BODIES[dialect]), answer)
    document: Json = json.loads(written)
    return document


def streamed(dialect: str, answer: GatewayAnswer) -> list[bytes]:
    return list(DIALECTS[dialect].write_stream(read(dialect, BODIES[dialect]), answer))


@pytest.mark.parametrize(
    ("dialect", "case"),
    [
        pytest.param(dialect, case, id=f"{dialect}: {case['name']}")
        for case in cases("write.yaml")
        for dialect in DIALECTS
        if dialect in case
    ],
)
def test_cases(dialect: str, case: Json) -> None:
    answer = answer_of(case["output"], **case.get("response", {}))
    expected = case[dialect]
    if "whole" in expected:
        found = whole(dialect, answer)
        assert {key: found[key] for key in expected["whole"]} == expected["whole"]
    if "events" in expected:
        found_events = [
            {"event": name, **data} if name else data
            for name, data in events(streamed(dialect, answer))
        ]
        assert [_seen(one) for one in found_events] == expected["events"]


def _seen(event: Any) -> Any:
    """An event without what all events of an answer repeat."""
    if not isinstance(event, dict):
        return event
    repeated = ("type", "id", "object", "created", "model", "modelVersion", "createTime")
    kept = {key: value for key, value in event.items() if key not in repeated}
    kept.pop("responseId", None)
    if "response" in kept:  # the whole document, which has its own cases
        kept["response"] = {key: kept["response"][key] for key in ("status", "usage")}
    return kept


@given(answers.outputs, st.sampled_from(["completed", "incomplete"]))
def test_a_chat_stream_adds_up(output: list[Json], status: str) -> None:
    answer = answer_of(output, status=status, usage=USAGE)
    document = whole("chat", answer)
    found = answers.chat_whole(streamed("chat", answer))
    choice = document["choices"][0]
    said = choice["message"]
    assert found["content"] == (said["content"] or "")
    assert found["refusal"] == (said["refusal"] or "")
    assert found["reasoning_content"] == said.get("reasoning_content", "")
    assert found["tool_calls"] == said.get("tool_calls", [])
    assert found["usage"] == document["usage"]
    assert choice["finish_reason"] == ("length" if status == "incomplete" else _ends(said))


def _ends(said: Json) -> str:
    return "tool_calls" if said.get("tool_calls") else "stop"


@given(answers.outputs, st.sampled_from(["completed", "incomplete"]))
def test_an_anthropic_stream_adds_up(output: list[Json], status: str) -> None:
    answer = answer_of(output, status=status, usage=USAGE)
    found = answers.anthropic_whole(streamed("anthropic", answer))
    assert found == whole("anthropic", answer)


@given(answers.outputs, st.sampled_from(["completed", "incomplete"]))
def test_a_gemini_stream_adds_up(output: list[Json], status: str) -> None:
    answer = answer_of(output, status=status, usage=USAGE)
    found = answers.gemini_whole(streamed("gemini", answer))
    document = whole("gemini", answer)
    # Texts that follow one another are one text to a program that reads a stream.
    pieces = [[json.dumps(part).encode() for part in _parts(one)] for one in (found, document)]
    assert _joined(_parts(found)) == _joined(_parts(document)), pieces
    assert found["usageMetadata"] == document["usageMetadata"]
    assert found["candidates"][0]["finishReason"] == document["candidates"][0]["finishReason"]


def _parts(document: Json) -> list[Json]:
    parts: list[Json] = document["candidates"][0]["content"]["parts"]
    return parts


def _joined(parts: list[Json]) -> list[Any]:
    made: list[Any] = []
    for part in parts:
        if set(part) == {"text"} and made and isinstance(made[-1], str):
            made[-1] += part["text"]
        else:
            made.append(part["text"] if set(part) == {"text"} else part)
    return made


@given(answers.outputs, st.sampled_from(["completed", "incomplete"]))
def test_a_responses_stream_adds_up(output: list[Json], status: str) -> None:
    answer = answer_of(output, status=status, usage=USAGE)
    document, found = answers.responses_whole(streamed("responses", answer))
    assert document == whole("responses", answer)
    assert [json.dumps(one, sort_keys=True) for one in found] == [
        json.dumps({"status": None, **one}, sort_keys=True) for one in document["output"]
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_deltas_are_bounded(dialect: str) -> None:
    long = "x" * 1_000_000
    answer = answer_of([reasoning(long), message(long), call("f", json.dumps({"a": long}))])
    pieces = streamed(dialect, answer)
    # The last event of a response is the whole, and Gemini has no pieces of a call.
    whole_events = [piece for piece in pieces if len(piece) > 20_000]
    assert len(whole_events) <= {"responses": 9, "chat": 0, "anthropic": 0, "gemini": 1}[dialect]
    assert len(pieces) > 400


def test_arguments_go_out_to_the_letter() -> None:
    written = '{ "b":1.0,\n "a": [1e2] }'
    answer = answer_of([call("f", written)])
    assert whole("responses", answer)["output"][0]["arguments"] == written
    said = whole("chat", answer)["choices"][0]["message"]
    assert said["tool_calls"][0]["function"]["arguments"] == written
    deltas = [
        event["delta"]["partial_json"]
        for name, event in events(streamed("anthropic", answer))
        if name == "content_block_delta"
    ]
    assert "".join(deltas) == written


@pytest.mark.parametrize("written", ["no", '{"a": 1', "[1]", "null", '{"a": NaN}', '"{}"'])
def test_arguments_that_are_not_an_object(written: str) -> None:
    answer = answer_of([call("f", written)])
    sent = {"invalid_arguments": written}
    assert whole("anthropic", answer)["content"][0]["input"] == sent
    assert _parts(whole("gemini", answer))[0]["functionCall"]["args"] == sent


def test_a_namespace_comes_back() -> None:
    answer = answer_of([call("mcp__files__read", "{}"), call("bash", "{}")])
    first, second = whole("responses", answer)["output"]
    assert (first["namespace"], first["name"]) == ("mcp__files__", "read")
    assert "namespace" not in second


def test_reasoning_is_shown_to_those_that_asked() -> None:
    answer = answer_of([reasoning("hm"), message("hello")])
    plain: dict[str, Json] = {
        "anthropic": {"messages": [{"role": "user", "content": "hi"}]},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    }
    document = whole("anthropic", answer, read("anthropic", plain["anthropic"]))
    assert [block["type"] for block in document["content"]] == ["text"]
    parts = _parts(whole("gemini", answer, read("gemini", plain["gemini"])))
    assert parts == [{"text": "hello"}]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", RefusalKind)
def test_refusals(dialect: str, kind: RefusalKind) -> None:
    reply = DIALECTS[dialect].write_refusal(Refusal(kind, "It is over."))
    document = json.loads(reply.body)
    assert "It is over." in document["error"]["message"]
    assert 400 <= reply.status < 600
    # Only what may succeed later makes a program try again.
    assert (reply.status >= 500) == (kind is RefusalKind.AGAIN)
    assert (reply.headers["X-Should-Retry"] == "true") == (kind is RefusalKind.AGAIN)
    assert DIALECTS[dialect].write_refusal(Refusal(kind, "x", 418)).status == 418
    ((_, event),) = events([DIALECTS[dialect].write_stream_refusal(Refusal(kind, "It is over."))])
    assert "It is over." in json.dumps(event)


def test_each_api_has_the_status_that_ends_its_programs() -> None:
    statuses = {
        name: one.write_refusal(Refusal(RefusalKind.STOP, "It is over.")).status
        for name, one in DIALECTS.items()
    }
    assert statuses == {"responses": 400, "chat": 401, "anthropic": 403, "gemini": 400}


def test_a_context_that_is_too_long_is_said_in_the_words_that_programs_look_for() -> None:
    refusal = Refusal(RefusalKind.CONTEXT_LENGTH, "9 tokens")
    bodies = {
        name: json.loads(one.write_refusal(refusal).body)["error"] for name, one in DIALECTS.items()
    }
    assert bodies["chat"]["code"] == "context_length_exceeded"
    assert "maximum context length is" in bodies["chat"]["message"]
    assert "prompt is too long" in bodies["anthropic"]["message"]
    assert "exceeds the maximum number of tokens" in bodies["gemini"]["message"]
    ((_, event),) = events([DIALECTS["responses"].write_stream_refusal(refusal)])
    assert event["response"]["error"]["code"] == "context_length_exceeded"


def test_models_and_counts() -> None:
    lists = {name: json.loads(one.write_models(["a/b", "c"], 1)) for name, one in DIALECTS.items()}
    assert [model["id"] for model in lists["chat"]["data"]] == ["a/b", "c"]
    assert [model["id"] for model in lists["anthropic"]["data"]] == ["a/b", "c"]
    assert lists["anthropic"]["data"][0]["created_at"] == "1970-01-01T00:00:01Z"
    assert lists["anthropic"]["last_id"] == "c"
    assert [model["name"] for model in lists["gemini"]["models"]] == ["models/a/b", "models/c"]
    assert json.loads(DIALECTS["responses"].write_model("c", 1))["id"] == "c"
    counts = {name: json.loads(one.write_token_count(7)) for name, one in DIALECTS.items()}
    assert counts["anthropic"] == {"input_tokens": 7}
    assert counts["gemini"] == {"totalTokens": 7}
    assert counts["responses"]["input_tokens"] == 7


@pytest.mark.parametrize("dialect", DIALECTS)
def test_nothing_at_all_is_an_answer(dialect: str) -> None:
    answer = answer_of([])
    assert whole(dialect, answer)
    assert streamed(dialect, answer)
