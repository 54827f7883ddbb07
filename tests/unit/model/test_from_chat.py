from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_model.convert import from_chat, items_from_message, messages_from_input, to_chat
from gymmesh_model.convert.endpoint_text import sent_arguments
from gymmesh_model.errors import AnswerInvalid
from gymmesh_responses import dumps, loads, response_from_json, response_to_dict
from gymmesh_runtime.errors import MeshError
from tests.unit.model import documents

Json = dict[str, Any]


def ids() -> Callable[[str], str]:
    count = itertools.count()
    return lambda prefix: f"{prefix}{next(count)}"


def chat(message: Json, finish: str | None = "stop", **more: Any) -> Json:
    return {"choices": [{"message": message, "finish_reason": finish}], **more}


def convert(answer: Json, params: Json | None = None) -> Json:
    return from_chat(answer, params or {}, new_id=ids(), now=5)


def meaning(items: list[Any]) -> list[Any]:
    """What the items say: ids, statuses and the spelling of content left out."""
    said: list[Any] = []
    for item in items:
        if item["type"] == "message":
            parts = item["content"]
            for part in parts:
                said.append((part["type"], part.get("text", part.get("refusal"))))
        elif item["type"] == "reasoning":
            parts = item.get("content") or item.get("summary") or []
            text = "\n\n".join(part["text"] for part in parts)
            said += [("reasoning", text)] if text else []
        elif item["type"] == "function_call":
            said.append(("call", item["call_id"], item["name"], item["arguments"]))
        else:
            said.append(("output", item["call_id"], item["output"]))
    return said


def back(messages: list[Json]) -> list[Json]:
    """Chat messages as Responses items."""
    items: list[Json] = []
    for message in messages:
        if message["role"] == "tool":
            call_id, output = message["tool_call_id"], message["content"]
            items.append({"type": "function_call_output", "call_id": call_id, "output": output})
        else:
            items += items_from_message(message, new_id=ids())
    return items


def test_a_whole_answer() -> None:
    response = convert(
        chat(
            {
                "role": "assistant",
                "content": "hello",
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "c1", "function": {"name": "f", "arguments": '{"a": 1.0}'}},
                    {"function": {"name": "g", "arguments": {"b": 2}}},
                ],
            },
            "tool_calls",
            id="chatcmpl-9",
            created=77,
            model="m-1",
            system_fingerprint="fp",
            usage={
                "prompt_tokens": 5,
                "completion_tokens": 3,
                "total_tokens": 8,
                "prompt_tokens_details": {"cached_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
        ),
        {"metadata": {"k": "v"}, "temperature": 0.5, "tools": [{"type": "function"}]},
    )
    assert meaning(response["output"]) == [
        ("reasoning", "hm"),
        ("output_text", "hello"),
        ("call", "c1", "f", '{"a": 1.0}'),
        ("call", "call_3", "g", '{"b":2}'),
    ]
    assert response["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 8,
    }
    expected = {
        "id": "chatcmpl-9",
        "created_at": 77,
        "model": "m-1",
        "status": "completed",
        "incomplete_details": None,
        "system_fingerprint": "fp",
        "metadata": {"k": "v"},
        "temperature": 0.5,
        "tools": [{"type": "function"}],
        "tool_choice": "auto",
    }
    assert {key: response[key] for key in expected} == expected
    assert response_to_dict(response_from_json(response)) == response


@pytest.mark.parametrize(
    ("finish", "status", "reason"),
    [
        ("stop", "completed", None),
        (None, "completed", None),
        ("tool_calls", "completed", None),
        ("STOP", "completed", None),
        ("end_turn", "completed", None),
        ("", "completed", None),
        ("xyzzy", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("MAX_TOKENS", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
        ("SAFETY", "incomplete", "content_filter"),
        ("abort", "incomplete", "aborted"),
        ("repetition", "incomplete", "repetition"),
    ],
)
def test_finish_reasons(finish: str | None, status: str, reason: str | None) -> None:
    response = convert(chat({"content": "cut"}, finish))
    assert response["status"] == status
    assert (response["incomplete_details"] or {}).get("reason") == reason
    assert response["output"][-1]["status"] == status


CALL: Json = {"id": "c1", "function": {"name": "f", "arguments": '{"a":1}'}}


@pytest.mark.parametrize("finish", ["", "STOP", "tool_use", "xyzzy", "TOOL_CALLS", None])
def test_a_whole_call_is_a_call_whatever_the_spelling(finish: str | None) -> None:
    response = convert(chat({"tool_calls": [CALL]}, finish))
    assert response["status"] == "completed"
    assert meaning(response["output"]) == [("call", "c1", "f", '{"a":1}')]


@pytest.mark.parametrize(
    ("message", "finish"),
    [
        ({"content": ""}, ""),
        ({}, "xyzzy"),
        ({"content": None}, "tool_calls"),
        ({"reasoning": "hm"}, "TOOL_USE"),
        ({"content": "cut"}, "error"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": '{"a":'}}]}, "xyzzy"),
    ],
)
def test_an_end_that_does_not_fit_the_answer(message: Json, finish: str) -> None:
    with pytest.raises(AnswerInvalid):
        convert(chat(message, finish))


def test_refusal_annotations_and_logprobs() -> None:
    answer = chat({"content": None, "refusal": "no"})
    assert meaning(convert(answer)["output"]) == [("refusal", "no")]
    cited = {"type": "url_citation", "url_citation": {"url": "u", "start_index": 0}}
    answer = chat({"content": "x", "annotations": [cited]})
    answer["choices"][0]["logprobs"] = {"content": [{"token": "x", "logprob": -0.5}]}
    part = convert(answer)["output"][0]["content"][0]
    assert part["annotations"] == [{"type": "url_citation", "url": "u", "start_index": 0}]
    assert part["logprobs"] == [{"token": "x", "logprob": -0.5}]


@pytest.mark.parametrize("message", [{}, {"content": ""}, {"content": None, "tool_calls": []}])
def test_an_empty_answer_is_a_message_without_text(message: Json) -> None:
    assert meaning(convert(chat(message))["output"]) == [("output_text", "")]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"choices": []},
        {"choices": [{}]},
        {"choices": "no"},
        chat({"content": 3}),
        chat({"content": [{"type": "image"}]}),
        chat({"tool_calls": [{"function": {"arguments": "{}"}}]}),
        chat({"tool_calls": {"a": 1}}),
        chat({"tool_calls": [3]}),
    ],
)
def test_what_is_no_answer(answer: Json) -> None:
    with pytest.raises(AnswerInvalid):
        convert(answer)


@given(documents.model_outputs())
def test_an_answer_survives_the_way_there_and_back(output: list[Json]) -> None:
    before = copy.deepcopy(output)
    messages = messages_from_input(output)
    assert output == before
    # Through the wire's JSON as well, where unpaired surrogates travel as escapes.
    # Arguments come back as they were sent, which is in a form that any endpoint can read.
    sent = [
        {**item, "arguments": sent_arguments(item["arguments"])}
        if item["type"] == "function_call"
        else item
        for item in output
    ]
    assert meaning(back(loads(dumps(messages)))) == meaning(sent)
    assert len(messages) == 1


@given(
    documents.params,
    st.sampled_from(["stop", "length", "tool_calls"]),
    documents.model_outputs(),
)
def test_every_answer_is_a_lossless_responses_document(
    params: Json, finish: str, output: list[Json]
) -> None:
    message = messages_from_input(output)[0]
    if not message.get("tool_calls"):
        finish = finish.replace("tool_calls", "stop")
    response = convert(chat(message, finish), params)
    assert response_to_dict(response_from_json(response)) == response
    assert response["metadata"] == params.get("metadata", {})
    assert response["tools"] == params.get("tools", [])


def test_recorded_responses_survive(golden_dir: Path) -> None:
    rows = 0
    for path in sorted(golden_dir.glob("*rollouts.jsonl")):
        for line in path.read_bytes().splitlines():
            row = json.loads(line)
            output = row["response"]["output"]
            assert meaning(back(messages_from_input(output))) == meaning(output), path.name
            try:
                to_chat(row["responses_create_params"])
            except MeshError as error:
                pytest.fail(f"{path.name}: {error}")
            rows += 1
    assert rows == 75
