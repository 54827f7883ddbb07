"""Tool calls in the pieces that servers make of them: a table of streams and the calls in each."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh_model.backends.answers.chat_stream import ChatFold
from gymmesh_model.backends.calls.progress import CallProgress
from gymmesh_model.backends.chat import ChatReader
from gymmesh_responses import dumps
from gymmesh_runtime.errors import MeshError

Json = dict[str, Any]
TOOLS = ("calculator", "search", "ping", "pong")
ARGS = '{"expression":"6*7"}'
MORE = '{"expression":"1+1"}'


def piece(name: Any = ..., args: Any = ..., **more: Any) -> Json:
    """A piece of a call; what is not given is not in it. `at`: its index, `id`: its id."""
    function = {
        key: value for key, value in (("name", name), ("arguments", args)) if value is not ...
    }
    index = {"index": more.pop("at")} if "at" in more else {}
    return {"tool_calls": [{**index, **more, **({"function": function} if function else {})}]}


def read(
    deltas: list[Json], finish: Any = "tool_calls", tools: tuple[str, ...] = TOOLS
) -> list[tuple[str, str]]:
    """The names and arguments of the calls in a stream of these deltas."""
    chunks = [{"choices": [{"delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"delta": {}, "finish_reason": finish}]})
    return calls_of(chunks, tools)


def calls_of(chunks: list[Json], tools: tuple[str, ...] = TOOLS) -> list[tuple[str, str]]:
    progress = CallProgress()
    reader = ChatReader("policy", ChatFold(progress, tools=tools), {}, progress)
    for chunk in chunks:
        reader.feed(dumps(chunk))
    reader.feed(b"[DONE]")
    calls = [item.function_call for item in reader.respond().output]
    assert len({call.call_id for call in calls}) == len(calls)
    return [(call.name, call.arguments.decode()) for call in calls]


ONE = [("calculator", ARGS)]
TWO = [("calculator", ARGS), ("calculator", MORE)]
STREAMS: dict[str, tuple[list[Json], list[tuple[str, str]]]] = {
    "as OpenAI": (
        [
            piece("calculator", "", at=0, id="a"),
            piece(args=ARGS[:5], at=0),
            piece(args=ARGS[5:], at=0),
        ],
        ONE,
    ),
    "whole calls at once": (
        [
            {
                "tool_calls": [
                    {"index": 0, "id": "a", "function": {"name": "calculator", "arguments": ARGS}},
                    {"index": 1, "id": "b", "function": {"name": "calculator", "arguments": MORE}},
                ]
            }
        ],
        TWO,
    ),
    "interleaved by index": (
        [
            piece("calculator", "", at=0, id="a"),
            piece("calculator", "", at=1, id="b"),
            piece(args=ARGS, at=0),
            piece(args=MORE, at=1),
        ],
        TWO,
    ),
    "an id that changes with each piece": (
        [
            piece("calculator", "", at=0, id="a"),
            piece(args=ARGS[:9], at=0, id="b"),
            piece(args=ARGS[9:], at=0, id="c"),
        ],
        ONE,
    ),
    "an id that changes, and a null name": (
        [piece("calculator", "", at=0, id="a"), piece(None, ARGS, at=0, id="b")],
        ONE,
    ),
    "an empty name in later pieces": (
        [piece("calculator", "", at=0, id="a"), piece("", ARGS, at=0, id="")],
        ONE,
    ),
    "index 0 for every call, ids": (
        [piece("calculator", ARGS, at=0, id="a"), piece("calculator", MORE, at=0, id="b")],
        TWO,
    ),
    "index 0 for every call, no ids": (
        [piece("calculator", ARGS, at=0), piece("calculator", MORE, at=0)],
        TWO,
    ),
    "index 0, no ids, arguments after names": (
        [
            piece("calculator", "", at=0),
            piece(args=ARGS, at=0),
            piece("calculator", "", at=0),
            piece(args=MORE, at=0),
        ],
        TWO,
    ),
    "neither index nor ids": (
        [piece("calculator", ARGS[:4]), piece(args=ARGS[4:]), piece("calculator", MORE)],
        TWO,
    ),
    "no index, ids": (
        [
            piece("calculator", "", id="a"),
            piece(args=ARGS, id="a"),
            piece("calculator", MORE, id="b"),
        ],
        TWO,
    ),
    "no index, interleaved by id": (
        [
            piece("calculator", "", id="a"),
            piece("calculator", "", id="b"),
            piece(args=ARGS, id="a"),
            piece(args=MORE, id="b"),
        ],
        TWO,
    ),
    "a name in two pieces": (
        [piece("calcu", at=0, id="a"), piece("lator", at=0), piece(args=ARGS, at=0)],
        ONE,
    ),
    "a name in two pieces, each with an id of its own": (
        [
            piece("calcu", "", at=0, id="a"),
            piece("lator", "", at=0, id="b"),
            piece(args=ARGS, at=0),
        ],
        ONE,
    ),
    "the name in every piece": (
        [
            piece("calculator", "", at=0, id="a"),
            piece("calculator", ARGS[:7], at=0, id="a"),
            piece("calculator", ARGS[7:], at=0, id="a"),
            piece("calculator", "", at=0, id="a"),
        ],
        ONE,
    ),
    "an index for every piece": (
        [
            piece("calculator", "", at=0, id="a"),
            piece(args=ARGS[:7], at=1),
            piece(args=ARGS[7:], at=2),
        ],
        ONE,
    ),
    "calls without arguments, by index": (
        [piece("ping", at=0, id="a"), piece("pong", at=1, id="b")],
        [("ping", ""), ("pong", "")],
    ),
    "calls without arguments, by name alone": (
        [piece("ping", "", at=0), piece("pong", "", at=0), piece("calculator", ARGS, at=0)],
        [("ping", ""), ("pong", ""), *ONE],
    ),
    "one without arguments, then one with": (
        [piece("ping", at=0, id="a"), piece("calculator", ARGS, at=0, id="b")],
        [("ping", ""), *ONE],
    ),
    "arguments as an object": (
        [piece("calculator", {"expression": "6*7"}, at=0, id="a")],
        ONE,
    ),
    "the name after the arguments": (
        [piece(args=ARGS, at=0, id="a"), piece("calculator", at=0)],
        ONE,
    ),
    "arguments that are not JSON, two indices": (
        [
            piece("calculator", '{"expression":', at=0, id="a"),
            piece("calculator", MORE, at=1, id="b"),
        ],
        [("calculator", '{"expression":'), ("calculator", MORE)],
    ),
    "arguments that are not JSON, two ids": (
        [piece("search", "cats", at=0, id="a"), piece("calculator", MORE, at=0, id="b")],
        [("search", "cats"), ("calculator", MORE)],
    ),
    "a legacy function_call": (
        [{"function_call": {"name": "calculator"}}, {"function_call": {"arguments": ARGS}}],
        ONE,
    ),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("finish", ["tool_calls", "stop", "TOOL_USE", ""])
def test_a_stream_of_calls(name: str, finish: str) -> None:
    deltas, expected = STREAMS[name]
    assert read(deltas, finish) == expected


def test_a_name_in_pieces_of_a_tool_that_is_not_known() -> None:
    assert read([piece("calcu", at=0), piece("lator", ARGS, at=0)], tools=()) == ONE


def test_a_whole_message_in_place_of_a_delta() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "calculator", "arguments": ARGS}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    chunk = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    assert calls_of([chunk]) == ONE
    # After all of its pieces, it says nothing new.
    pieces = [{"choices": [{"delta": delta}]} for delta in STREAMS["as OpenAI"][0]]
    assert calls_of([*pieces, chunk]) == ONE


@pytest.mark.parametrize(
    "deltas",
    [
        [],  # calls are promised, and none comes
        [piece(args=ARGS, at=0)],  # of no tool
        [piece("calculator", '{"expr', at=0), piece("search", "ession", at=0)],
        [{"tool_calls": ["calculator"]}],
        [{"tool_calls": "calculator"}],
    ],
)
def test_what_makes_no_sense(deltas: list[Json]) -> None:
    with pytest.raises(MeshError) as caught:
        read(deltas)
    assert caught.value.reason_name == "MODEL_ANSWER_INVALID"


@pytest.mark.parametrize(
    "chunks",
    [
        [{"choices": [{"finish_reason": "stop"}]}],
        [{"choices": [{"content": "42", "finish_reason": "stop"}]}],
        [{"choices": []}],
        [{"choices": [{"delta": {"content": ""}, "finish_reason": ""}]}],
    ],
)
def test_a_stream_without_an_answer_is_not_an_empty_answer(chunks: list[Json]) -> None:
    with pytest.raises(MeshError) as caught:
        calls_of(chunks)
    assert caught.value.reason_name == "MODEL_ANSWER_INVALID"
