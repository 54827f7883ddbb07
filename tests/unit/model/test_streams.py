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


def read_responses(events: list[Json]) -> Json:
    reader = ResponsesReader("policy", (), CallProgress())
    for one in events:
        reader.feed(json.dumps(one).encode())
    document: Json = response_to_dict(reader.respond())
    return document


MESSAGE: Json = {
    "type": "message",
    "id": "m1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "42", "annotations": []}],
}
CALL: Json = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "f"}


@pytest.mark.parametrize("output", [{"output": []}, {}, {"output": None}])
@pytest.mark.parametrize("kind", ["completed", "incomplete"])
def test_a_last_event_without_output_keeps_the_items_before_it(output: Json, kind: str) -> None:
    call = {**CALL, "arguments": "{}", "status": "completed"}
    last = {"id": "r", "status": kind, **output}
    events: list[Json] = [
        {"type": "response.created", "response": {"id": "r", "output": []}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**MESSAGE, "content": []},
        },
        {"type": "response.output_text.delta", "output_index": 0, "delta": "42"},
        {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE},
        {"type": "response.output_item.done", "output_index": 1, "item": call},
        {"type": f"response.{kind}", "response": last},
    ]
    assert read_responses(events)["output"] == [MESSAGE, call]


def test_items_that_were_never_said_to_be_done_are_kept_as_far_as_they_came() -> None:
    events: list[Json] = [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**CALL, "arguments": ""},
        },
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{}"},
        {"type": "response.output_item.added", "output_index": 1, "item": MESSAGE},
        {"type": "response.output_text.delta", "output_index": 2, "delta": "4"},
        {"type": "response.output_text.delta", "output_index": 2, "delta": "3"},
        {
            "type": "response.completed",
            "response": {"id": "r", "status": "completed", "output": []},
        },
    ]
    call, message, text = read_responses(events)["output"]
    assert call == {**CALL, "arguments": "{}", "status": "completed"}
    assert message == MESSAGE
    assert (text["role"], text["content"][0]["text"]) == ("assistant", "43")


def test_arguments_without_a_call_are_no_answer() -> None:
    events: list[Json] = [
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{}"},
        {
            "type": "response.completed",
            "response": {"id": "r", "status": "completed", "output": []},
        },
    ]
    with pytest.raises(MeshError) as caught:
        read_responses(events)
    assert caught.value.reason_name == "MODEL_ANSWER_INVALID"


PARTS: dict[str, tuple[list[Any], str, str]] = {
    "text": ([{"type": "text", "text": "4"}, {"type": "text", "text": "2"}], "", "42"),
    "Mistral's thinking": (
        [
            {"type": "thinking", "thinking": [{"type": "text", "text": "6*7"}]},
            {"type": "text", "text": "42"},
        ],
        "6*7",
        "42",
    ),
    "thinking as text": (
        [{"type": "thinking", "thinking": "6*7"}, {"type": "text", "text": "42"}],
        "6*7",
        "42",
    ),
    "a reference": (
        [{"type": "text", "text": "42"}, {"type": "reference", "reference_ids": [1]}],
        "",
        "42",
    ),
    "bare texts": (["4", "2"], "", "42"),
}


@pytest.mark.parametrize("think", [False, True])
@pytest.mark.parametrize("name", PARTS)
def test_content_as_a_list_of_parts(name: str, think: bool) -> None:
    parts, reasoning, text = PARTS[name]
    message = {"role": "assistant", "content": parts}
    answer: Json = {"choices": [{"message": message, "finish_reason": "stop"}]}
    whole = respond("policy", lift_thinking(answer) if think else answer, {})
    made: list[Json] = [{"choices": [{"delta": {"content": [part]}}]} for part in parts]
    made.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    streamed, _ = read_chat(b"".join(map(event, made)) + b"data: [DONE]\n\n", [], think=think)
    for response in (whole, streamed):
        said = {
            item["type"]: "".join(part["text"] for part in item["content"])
            for item in response_to_dict(response)["output"]
        }
        assert said == ({"reasoning": reasoning} if reasoning else {}) | {"message": text}
    notes = response_to_dict(whole)["output"][-1]["content"][-1]["annotations"]
    assert notes == [part for part in parts if "reference_ids" in part]


def test_a_part_of_an_unknown_type_is_not_dropped() -> None:
    made = [{"choices": [{"delta": {"content": [{"type": "hologram"}]}, "finish_reason": "stop"}]}]
    with pytest.raises(MeshError, match="hologram"):
        read_chat(b"".join(map(event, made)), [])


THOUGHTS = [
    ("no tags", "42", None, "42"),
    ("a block", "<think>a</think>42", "a", "42"),
    ("blanks before it", " \n<think>a</think>42", "a", "42"),
    ("no opener", "Is it 41? No.\n</think>\n\n42", "Is it 41? No.\n", "\n\n42"),
    ("an empty block", "<think></think>42", None, "42"),
    ("no opener, and nothing", "</think>42", None, "42"),
    ("two blocks", "<think>a</think>\n<think>41</think>42", "a\n\n41", "\n42"),
    ("a block further on", "<think>a</think>So <think>41</think>42", "a\n\n41", "So 42"),
    ("text first", "So <think>41</think>42", "41", "So 42"),
    ("no opener, then a block", "a</think>So <think>b</think>42", "a\n\nb", "So 42"),
    ("never closed", "<think>a", "a", ""),
    ("a tag that is spoken of", "<think>a</think>use <think> here", "a", "use <think> here"),
    ("a closing tag spoken of", "<think>a</think>b</think>c", "a", "b</think>c"),
]


@pytest.mark.parametrize(("name", "written", "reasoning", "text"), THOUGHTS)
def test_where_thinking_stands(name: str, written: str, reasoning: str | None, text: str) -> None:
    message = {"role": "assistant", "content": written}
    lifted = lift_thinking({"choices": [{"message": message}]})["choices"][0]["message"]
    assert (lifted.get("reasoning_content"), lifted["content"]) == (reasoning, text)
    # A stream gives the same answer, in pieces of any size.
    for size in (1, 3, 100):
        made: list[Json] = [
            {"choices": [{"delta": {"content": written[start : start + size]}}]}
            for start in range(0, len(written), size)
        ]
        made.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        response, _ = read_chat(b"".join(map(event, made)) + b"data: [DONE]\n\n", [], think=True)
        said = {
            item["type"]: "".join(part["text"] for part in item["content"])
            for item in response_to_dict(response)["output"]
        }
        assert said.get("message", "") == text
        assert said.get("reasoning", "") == (reasoning or "")


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
    if tagged and "<think>" not in text:
        reasoning, _, rest = text.partition("</think>")
        assert (joined(pieces, "reasoning"), joined(pieces, "text")) == (reasoning, rest)


@given(
    thoughts.filter(lambda one: one and "</think>" not in one),
    thoughts.filter(lambda one: "<think>" not in one),
)
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
