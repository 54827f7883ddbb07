"""Streams, read in pieces of any size, against what they were made of."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.model.v1 import model_pb2
from gymmesh_model.backends.answers.chat_stream import ChatFold
from gymmesh_model.backends.answers.responses import ResponsesReader
from gymmesh_model.backends.calls.progress import CallProgress
from gymmesh_model.backends.chat import ChatReader, read_answer, respond
from gymmesh_model.backends.endpoint.sse import SseDecoder
from gymmesh_model.convert import lift_thinking, lower_thinking, messages_from_input
from gymmesh_model.convert.from_chat import items_from_message
from gymmesh_model.convert.thinking import ThinkSplitter
from gymmesh_model.serving import DeltaQueue
from gymmesh_responses import response_to_dict
from gymmesh_runtime.errors import MeshError
from tests.support import endpoint
from tests.support.endpoint import event, events_of
from tests.unit.model import documents

Json = dict[str, Any]
Delta = model_pb2.ResponseDelta

lines = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=12)


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    """The bytes in pieces, cut anywhere."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(places)]


@given(
    st.lists(st.lists(lines, min_size=1, max_size=3), max_size=4),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 1000), max_size=12),
)
def test_events_survive_any_cut(events: list[list[str]], newline: str, cuts: list[int]) -> None:
    text = f"\ufeff: a comment{newline}"
    for lines_of in events:
        text += f"event: x{newline}id: 1{newline}: ping{newline}"
        text += "".join(f"data: {line}{newline}" for line in lines_of) + newline
    text += "data: of an event that never ends"
    stream = SseDecoder()
    got = [data for piece in split(text.encode(), cuts) for data in stream.feed(piece)]
    assert got == ["\n".join(one).encode() for one in events]


def test_data_without_a_blank_and_without_a_colon() -> None:
    assert SseDecoder().feed(b"data:a\n\ndata\ndata:  b\n\n\n") == [b"a", b"\n b"]


def chat_document(output: list[Json], finish: str) -> Json:
    message = messages_from_input(output)[0]
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return {
        "id": "c-1",
        "object": "chat.completion",
        "created": 5,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": usage,
    }


def read_chat(events: bytes, cuts: list[int], **more: Any) -> tuple[Any, list[Delta]]:
    deltas: list[Delta] = []
    progress = CallProgress(deltas.append)
    reader = ChatReader("policy", ChatFold(progress, **more), {"model": "m"}, progress)
    stream = SseDecoder()
    for piece in split(events, cuts):
        for data in stream.feed(piece):
            reader.feed(data)
    assert reader.ended
    return reader.respond(), deltas


def said(deltas: list[Delta]) -> dict[tuple[int, str], bytes]:
    """All that the deltas say, by place and kind."""
    found: dict[tuple[int, str], bytes] = {}
    for delta in deltas:
        kind = delta.WhichOneof("delta") or ""
        key = (delta.output_index, kind)
        found[key] = found.get(key, b"") + getattr(delta, kind)
    return found


def meant(response: Any) -> dict[tuple[int, str], bytes]:
    """What the deltas of this answer must say."""
    found = {}
    for index, item in enumerate(response_to_dict(response)["output"]):
        if item["type"] == "function_call":
            text, kind = item["arguments"], "arguments"
        else:
            kind = "reasoning" if item["type"] == "reasoning" else "text"
            text = "".join(part.get("text", "") for part in item["content"])
        if text:
            found[index, kind] = text.encode("utf-8", "surrogatepass")
    return found


def without_ids(response: Any) -> Json:
    document: Json = response_to_dict(response)
    for item in document["output"]:
        item.pop("id")
    return document


@given(
    documents.model_outputs(),
    st.sampled_from(["stop", "length", "content_filter"]),
    st.integers(1, 7),
    st.lists(st.integers(0, 100_000), max_size=20),
)
def test_a_chat_stream_is_the_whole_answer(
    output: list[Json], finish: str, size: int, cuts: list[int]
) -> None:
    document = chat_document(output, finish)
    chunks = endpoint.chat_chunks(document, size)
    events = b"".join(map(event, chunks)) + b"data: [DONE]\n\n"
    response, deltas = read_chat(events, cuts)
    whole = respond("policy", read_answer("policy", json.dumps(document).encode()), {"model": "m"})
    assert without_ids(response) == without_ids(whole)
    assert said(deltas) == meant(response)


def test_halves_of_a_surrogate_pair_are_joined() -> None:
    deltas = [{"content": "a\ud83d"}, {"content": "\ude00b"}]
    made: list[Json] = [{"choices": [{"delta": one}]} for one in deltas]
    made.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    events = b"".join(map(event, made))
    response, got = read_chat(events + b"data: [DONE]\n\n", [])
    assert said(got) == {(0, "text"): "a😀b".encode()} == meant(response)


def test_calls_without_index_and_with_one_index_for_all() -> None:
    def call(call_id: str, name: str, arguments: str, **more: Any) -> Json:
        return {"id": call_id, "function": {"name": name, "arguments": arguments}, **more}

    both: list[Json] = [{"index": 0}, {}]
    for more in both:
        made = [
            {"choices": [{"delta": {"tool_calls": [call("c1", "f", '{"a"', **more)]}}]},
            {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": ":1}"}, **more}]}}]},
            {"choices": [{"delta": {"tool_calls": [call("c2", "g", "{}", **more)]}}]},
            {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
        ]
        response, got = read_chat(b"".join(map(event, made)) + b"data: [DONE]\n\n", [])
        calls = [item.function_call for item in response.output]
        assert [(one.call_id, one.name) for one in calls] == [("c1", "f"), ("c2", "g")]
        assert said(got) == {(0, "arguments"): b'{"a":1}', (1, "arguments"): b"{}"}


def test_an_endpoints_own_order_is_kept() -> None:
    made = [
        {"choices": [{"delta": {"content": "first"}}]},
        {"choices": [{"delta": {"reasoning_content": "then"}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
    ]
    response, got = read_chat(b"".join(map(event, made)) + b"data: [DONE]\n\n", [])
    assert said(got) == meant(response) == {(0, "text"): b"first", (1, "reasoning"): b"then"}


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": 3},
        {"choices": [7]},
        {"choices": [{"delta": []}]},
        {"choices": [{"delta": {"content": 5}}]},
        {"choices": [{"delta": {"tool_calls": 5}}]},
        {"choices": [{"delta": {"tool_calls": [5]}}]},
    ],
)
def test_what_is_no_chunk(chunk: Json) -> None:
    with pytest.raises(MeshError) as caught:
        read_chat(event(chunk) + b"data: [DONE]\n\n", [])
    assert caught.value.reason_name == "MODEL_ANSWER_INVALID"


@given(documents.model_outputs(), st.integers(1, 7), st.lists(st.integers(0, 100_000), max_size=20))
def test_a_responses_stream_is_the_whole_answer(
    output: list[Json], size: int, cuts: list[int]
) -> None:
    document = {"id": "r", "object": "response", "status": "completed", "output": output}
    events = b"".join(map(event, endpoint.responses_events(document, size)))
    deltas: list[Delta] = []
    reader = ResponsesReader("policy", (), CallProgress(deltas.append))
    stream = SseDecoder()
    for piece in split(events, cuts):
        for data in stream.feed(piece):
            reader.feed(data)
    assert reader.response is not None
    assert response_to_dict(reader.response) == document
    assert said(deltas) == meant(reader.response)


thoughts = st.text(st.sampled_from("<think>/ab \n"), max_size=20)


@given(thoughts, st.booleans(), st.lists(st.integers(0, 100), max_size=8))
def test_think_tags_are_found_at_any_cut(text: str, tagged: bool, cuts: list[int]) -> None:
    whole = f"<think>{text}" if tagged else text
    places = [0, *sorted(cut % (len(whole) + 1) for cut in cuts), len(whole)]
    splitter, once = ThinkSplitter(), ThinkSplitter()
    pieces = []
    for start, end in itertools.pairwise(places):
        pieces += splitter.feed(whole[start:end])
    pieces += splitter.end()
    expected = once.feed(whole) + once.end()

    def joined(found: list[Any], kind: str) -> str:
        return "".join(text for one, text in found if one == kind)

    for kind in ("reasoning", "text"):
        assert joined(pieces, kind) == joined(expected, kind)
    if tagged:
        reasoning, _, rest = text.partition("</think>")
        assert (joined(pieces, "reasoning"), joined(pieces, "text")) == (reasoning, rest)


@given(thoughts.filter(lambda one: one and "</think>" not in one), thoughts)
def test_think_tags_there_and_back(reasoning: str, text: str) -> None:
    written = f"<think>{reasoning}</think>{text}"
    message = {"role": "assistant", "content": written}
    lifted = lift_thinking({"choices": [{"message": message}]})["choices"][0]["message"]
    assert lifted["reasoning_content"] == reasoning
    items = items_from_message(lifted, new_id=lambda prefix: prefix + "1")
    sent = lower_thinking({"messages": messages_from_input(items)})["messages"]
    assert sent == [{"role": "assistant", "content": written}]


def test_a_message_that_has_its_reasoning_apart_is_left_alone() -> None:
    message = {"content": "<think>a</think>b", "reasoning_content": "r"}
    answer = {"choices": [{"message": message}]}
    assert lift_thinking(answer) == answer


def test_thinking_in_a_stream() -> None:
    message = {"role": "assistant", "content": "<think>hm\n</think>\n4"}
    whole: Json = {
        "id": "c",
        "object": "chat.completion",
        "created": 5,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    response, deltas = read_chat(b"".join(events_of(whole, 2)), [], think=True)
    assert said(deltas) == meant(response) == {(0, "reasoning"): b"hm\n", (1, "text"): b"\n4"}


async def test_deltas_that_wait_are_joined_in_order() -> None:
    queue = DeltaQueue()
    for index, text in [(0, b"a"), (0, b"b"), (1, b"c"), (0, b"d")]:
        queue.put(Delta(output_index=index, text=text))
    queue.end()
    got = [(delta.output_index, delta.text) async for delta in queue]
    assert got == [(0, b"ab"), (1, b"c"), (0, b"d")]
