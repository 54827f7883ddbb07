"""What models write is typed wherever the contract has a field, and anything near it comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gymmesh_responses as codec
from tests.unit.codec import strategies
from tests.unit.codec.equality import same_json

Json = dict[str, Any]
TEXT: Json = {"type": "output_text", "text": "5", "annotations": []}
MESSAGE: Json = {
    "type": "message",
    "id": "m",
    "role": "assistant",
    "status": "completed",
    "content": [TEXT, {**TEXT, "logprobs": []}],
}
CALL: Json = {
    "type": "function_call",
    "id": "f",
    "call_id": "c",
    "name": "add",
    "arguments": "{}",
    "status": "completed",
}
THOUGHT: Json = {
    "type": "reasoning",
    "id": "r",
    "summary": [{"type": "summary_text", "text": "s"}],
    "content": [{"type": "reasoning_text", "text": "t"}],
    "encrypted_content": "e",
    "status": "completed",
}
USAGE: Json = {
    "input_tokens": 1,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 2**63 - 1,
}
ANSWER: Json = {
    "id": "a",
    "object": "response",
    "created_at": 1.5,
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "instructions": "Add.",
    "model": "m",
    "output": [THOUGHT, MESSAGE, CALL],
    "tools": [{"type": "function", "name": "add", "parameters": {"type": "object"}}],
    "temperature": 1.0,
    "usage": USAGE,
    "metadata": {},
}
ODD: list[Any] = [None, 1, 1.0, True, "\ud800", {}, [1]]


def nearly(document: Json) -> list[Json]:
    """The document with one key less, one more, another, or another value."""
    others: list[Json] = [{**document, "x": 1}]
    for key in document:
        less = {name: value for name, value in document.items() if name != key}
        others += [less, {**less, "x": "y"}]
        others += [{**document, key: value} for value in ODD]
    return others


def check(document: Json) -> None:
    """The lossless law, of a response."""
    response = codec.response_from_json(json.dumps(document))
    assert same_json(codec.response_to_json(response), document)


def test_what_models_write_is_typed() -> None:
    response = codec.response_from_json(ANSWER)
    usage = response.usage
    thought, message, call = response.output
    typed = (usage, thought.reasoning, message.message, call.function_call)
    parts = [part.output_text for part in message.message.parts.parts]
    assert [one.overlay_json for one in (*typed, *parts)] == [b""] * 6
    assert (usage.input_tokens, usage.cached_tokens) == (1, 0)
    assert (usage.output_tokens, usage.reasoning_tokens) == (2, 0)
    assert usage.total_tokens == 2**63 - 1
    assert list(thought.reasoning.summary.texts) == ["s"]
    assert list(thought.reasoning.content.texts) == ["t"]
    assert [part.text for part in parts] == ["5", "5"]
    assert [part.logprobs_empty for part in parts] == [False, True]
    assert call.function_call.arguments == b"{}"
    kept = set(json.loads(response.overlay_json))
    assert kept == set(ANSWER) - {"id", "model", "status", "output", "usage"}


@pytest.mark.parametrize("document", [ANSWER, *nearly(ANSWER)])
def test_answers_that_are_nearly_usual(document: Json) -> None:
    check(document)


@pytest.mark.parametrize("item", [*nearly(MESSAGE), *nearly(CALL), *nearly(THOUGHT)])
def test_items_that_are_nearly_usual(item: Json) -> None:
    check({**ANSWER, "output": [item]})


@pytest.mark.parametrize("part", [*nearly(TEXT), *nearly({**TEXT, "logprobs": []})])
def test_parts_that_are_nearly_usual(part: Json) -> None:
    check({**ANSWER, "output": [{**MESSAGE, "content": [part]}]})


@pytest.mark.parametrize(
    "usage",
    [
        *nearly(USAGE),
        {**USAGE, "input_tokens_details": {"cached_tokens": True}},
        {**USAGE, "input_tokens_details": {"other": 1}},
        {**USAGE, "output_tokens_details": {"reasoning_tokens": 1, "other": 2}},
        {**USAGE, "output_tokens": 2**63},
    ],
)
def test_counts_that_are_nearly_usual(usage: Json) -> None:
    check({**ANSWER, "usage": usage})


def usual(**known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects with all of these keys, and now and then something else in their place."""
    odd = {key: st.one_of(good, good, good, strategies.leaves) for key, good in known.items()}
    return st.fixed_dictionaries(known) | st.fixed_dictionaries(odd)


_text = strategies.text
_parts = usual(type=st.just("output_text"), text=_text, annotations=st.just([]))
_texts = st.lists(usual(type=st.just("reasoning_text"), text=_text), max_size=2)
_items = st.one_of(
    usual(
        type=st.just("message"),
        id=_text,
        role=_text,
        status=_text,
        content=st.lists(_parts, max_size=3),
    ),
    usual(
        type=st.just("function_call"),
        id=_text,
        call_id=_text,
        name=_text,
        arguments=_text,
        status=_text,
    ),
    usual(type=st.just("reasoning"), id=_text, summary=st.just([]), content=_texts),
    strategies.items,
)


@given(
    usual(
        id=_text,
        model=_text,
        status=_text,
        output=st.lists(_items, max_size=3),
        usage=strategies.usages,
        metadata=strategies.documents,
    )
)
def test_any_answer_comes_back(document: Json) -> None:
    check(document)
