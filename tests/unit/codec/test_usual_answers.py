"""Usual answers are read in one pass, which gives what the two passes for all others give."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gymmesh_responses as codec
from gymmesh.responses.v1 import responses_pb2 as pb
from tests.unit.codec import strategies
from tests.unit.codec.equality import same_json
from tests.unit.codec.test_usual import CALL, MESSAGE, TEXT, USAGE, nearly, usual

Json = dict[str, Any]
THOUGHT = {
    "type": "reasoning",
    "id": "r",
    "summary": [{"type": "summary_text", "text": "s"}],
    "content": [{"type": "reasoning_text", "text": "t"}],
    "encrypted_content": None,
    "status": None,
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
DETAILS = {"cached_tokens": 0, "cached_tokens_per_turn": []}
USUAL = [
    ANSWER,
    {**ANSWER, "output": []},
    {**ANSWER, "output": [{**MESSAGE, "content": []}, {**THOUGHT, "content": []}]},
    {**ANSWER, "output": [{**MESSAGE, "content": [{**TEXT, "logprobs": None}]}]},
    {**ANSWER, "output": [{**MESSAGE, "content": [{**TEXT, "logprobs": [{"token": "5"}]}]}]},
    {**ANSWER, "output": [{**MESSAGE, "content": [{**TEXT, "annotations": [{"url": "u"}]}]}]},
    {**ANSWER, "usage": None},
    {**ANSWER, "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}},
    {**ANSWER, "usage": {**USAGE, "input_tokens_details": DETAILS}},
    {**ANSWER, "usage": {**USAGE, "output_tokens_details": None}},
    {**ANSWER, "created_at": 2**70, "temperature": -0.0, "top_p": 1e22},
]


def overlaid(response: pb.Response) -> Iterator[Any]:
    """The messages in a response that have overlays."""
    yield response
    yield response.usage
    yield response.error
    yield response.incomplete_details
    for item in response.output:
        kind = item.WhichOneof("kind")
        message = getattr(item, kind or "")
        if kind == "opaque":
            continue
        yield message
        parts = message.parts.parts if kind in ("message", "function_call_output") else ()
        for part in parts:
            if not part.HasField("opaque"):
                yield getattr(part, part.WhichOneof("kind") or "")


def typed(response: pb.Response) -> bytes:
    """What the typed fields hold; in the overlays, keys may be in any order."""
    bare = pb.Response()
    bare.CopyFrom(response)
    for message in overlaid(bare):
        message.ClearField("overlay_json")
    return bare.SerializeToString(deterministic=True)


def is_usual(text: bytes) -> bool:
    """Whether one pass reads it; what that gives is what the others give."""
    quick = pb.Response()
    counts = codec.fill_usual(quick, text)
    if counts is None:
        return False
    assert counts == (quick.usage.input_tokens, quick.usage.output_tokens)
    response = codec.response_from_json(text)
    assert typed(quick) == typed(response)
    written = codec.response_to_json(quick)
    assert same_json(written, text)
    assert same_json(written, codec.response_to_json(response))
    assert response.status == "completed"
    assert not response.HasField("error")
    return True


@pytest.mark.parametrize("document", USUAL)
def test_what_endpoints_write_is_read_in_one_pass(document: Json) -> None:
    assert is_usual(json.dumps(document).encode())
    assert is_usual(json.dumps(document, ensure_ascii=False, indent=1).encode())


@pytest.mark.parametrize(
    "document",
    [
        {**ANSWER, "status": "incomplete"},
        {**ANSWER, "error": {"code": "x"}},
        {**ANSWER, "incomplete_details": {}},
        {**ANSWER, "x": 1},
        {**ANSWER, "overlay_json": 1},
        {**ANSWER, "id": "\ud800"},
        {**ANSWER, "output": None},
        {**ANSWER, "output": [{"type": "web_search_call", "id": "w"}]},
        {**ANSWER, "output": [{"role": "assistant", "content": "5"}]},
        {**ANSWER, "usage": {**USAGE, "total_tokens": 2**63}},
        {**ANSWER, "usage": {**USAGE, "input_tokens_details": {"cached_tokens": 2**63}}},
        {**ANSWER, "usage": {**USAGE, "total_tokens": 3.0}},
        {**ANSWER, "tools": json.loads("[" * 241 + "]" * 241)},
    ],
)
def test_any_other_is_not(document: Json) -> None:
    assert not is_usual(json.dumps(document).encode())


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"{}", b'"\xff"', b"[" * 100_000])
def test_no_response_is_not_usual(text: bytes) -> None:
    assert not is_usual(text)


def test_of_two_types_neither_is_believed() -> None:
    text = json.dumps({**ANSWER, "output": [CALL]}).encode()
    twice = text.replace(b'"type": "function_call"', b'"type":"message","type":"function_call"')
    assert is_usual(text)
    assert not is_usual(twice)


@pytest.mark.parametrize("item", [*nearly(MESSAGE), *nearly(CALL), *nearly(THOUGHT)])
def test_items_that_are_nearly_usual(item: Any) -> None:
    is_usual(json.dumps({**ANSWER, "output": [item]}).encode())


@pytest.mark.parametrize("part", [*nearly(TEXT), *nearly({**TEXT, "logprobs": []})])
def test_parts_that_are_nearly_usual(part: Any) -> None:
    is_usual(json.dumps({**ANSWER, "output": [{**MESSAGE, "content": [part]}]}).encode())


@pytest.mark.parametrize("document", [*nearly(ANSWER)])
def test_answers_that_are_nearly_usual(document: Any) -> None:
    is_usual(json.dumps(document).encode())


_text = strategies.clean_text
_part = usual(type=st.just("output_text"), text=_text, annotations=st.just([]))
_texts = st.lists(usual(type=st.just("reasoning_text"), text=_text), max_size=2)
_items = st.one_of(
    usual(
        type=st.just("message"),
        id=_text,
        role=_text,
        status=_text,
        content=st.lists(_part, max_size=3),
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
)
_usage = usual(
    input_tokens=st.integers(0, 9),
    output_tokens=strategies.integers,
    total_tokens=st.integers(0, 9),
    input_tokens_details=usual(cached_tokens=strategies.integers),
)


@given(
    usual(
        id=_text,
        model=_text,
        status=st.just("completed"),
        output=st.lists(_items, max_size=3),
        usage=_usage,
        metadata=strategies.documents,
        tools=strategies.documents,
    )
)
def test_any_answer_is_read_the_same(document: Any) -> None:
    is_usual(json.dumps(document).encode())
