"""What models write is read by short ways: each gives the message that the long way gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gymmesh_responses as codec
from gymmesh_responses import content, items, usage
from tests.unit.codec import strategies

SHORT = [
    (items, "_fill_usual_message"),
    (items, "_fill_usual_call"),
    (content, "_fill_usual_text"),
    (usage, "_fill_usual"),
]
TEXT = {"type": "output_text", "text": "5", "annotations": []}
MESSAGE = {
    "type": "message",
    "id": "m",
    "role": "assistant",
    "status": "completed",
    "content": [TEXT, {**TEXT, "logprobs": []}],
}
CALL = {
    "type": "function_call",
    "id": "f",
    "call_id": "c",
    "name": "add",
    "arguments": "{}",
    "status": "completed",
}
ODD: list[Any] = [None, 1, 1.0, True, "\ud800", {}, [1]]
USAGE = {
    "input_tokens": 1,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 2**63 - 1,
}


@contextmanager
def counted(*, short: bool) -> Iterator[list[str]]:
    """With or without the short ways; the names of those that were to the end."""
    taken: list[str] = []

    def watched(name: str, way: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
        def walked(message: Any, value: Any) -> bool:
            ended = short and way(message, value)
            taken.extend([name] * ended)
            return ended

        return walked

    with ExitStack() as patched:
        for module, name in SHORT:
            way = watched(name, getattr(module, name))
            patched.enter_context(mock.patch.object(module, name, way))
        yield taken


def short_ways(read: Callable[[Any], Any], document: Any) -> list[str]:
    """The short ways that reading it takes, which give what the long ones give."""
    with counted(short=True) as ways:
        message = read(document)
    with counted(short=False):
        assert read(document).SerializeToString(deterministic=True) == message.SerializeToString(
            deterministic=True
        )
    return ways


def test_what_models_write_takes_the_short_ways() -> None:
    assert short_ways(codec.item_from_json, MESSAGE) == [
        "_fill_usual_text",
        "_fill_usual_text",
        "_fill_usual_message",
    ]
    assert short_ways(codec.item_from_json, {**MESSAGE, "content": []}) == ["_fill_usual_message"]
    assert short_ways(codec.item_from_json, CALL) == ["_fill_usual_call"]
    assert short_ways(codec.usage_from_json, USAGE) == ["_fill_usual"]


def nearly(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The document with one key less, one more, another, or another value."""
    others: list[dict[str, Any]] = [{**document, "x": 1}]
    for key in document:
        less = {name: value for name, value in document.items() if name != key}
        others += [less, {**less, "x": "y"}]
        others += [{**document, key: value} for value in ODD]
    return others


@pytest.mark.parametrize("document", [MESSAGE, CALL, *nearly(MESSAGE), *nearly(CALL)])
def test_any_other_item_is_read_the_long_way(document: Any) -> None:
    ways = short_ways(codec.item_from_json, document)
    usual = document in (MESSAGE, CALL) or document == {**MESSAGE, "content": [1]}
    assert ("_fill_usual_message" in ways or "_fill_usual_call" in ways) == usual


@pytest.mark.parametrize("part", nearly(TEXT) + nearly({**TEXT, "logprobs": []}))
def test_any_other_part_is_read_the_long_way(part: Any) -> None:
    ways = short_ways(codec.item_from_json, {**MESSAGE, "content": [part]})
    assert ways == ["_fill_usual_text"] * (part == TEXT) + ["_fill_usual_message"]


@pytest.mark.parametrize(
    "document",
    [
        *nearly(USAGE),
        {**USAGE, "input_tokens_details": {"cached_tokens": True}},
        {**USAGE, "input_tokens_details": {"other": 1}},
        {**USAGE, "output_tokens_details": {"reasoning_tokens": 1, "other": 2}},
        {**USAGE, "output_tokens": 2**63},
    ],
)
def test_any_other_usage_is_read_the_long_way(document: Any) -> None:
    usual = document in [{**USAGE, key: 1} for key in USAGE] and not any(
        type(value) in (bool, float) for value in document.values()
    )
    details = type(document.get("input_tokens_details")) is dict
    details &= type(document.get("output_tokens_details")) is dict
    assert short_ways(codec.usage_from_json, document) == ["_fill_usual"] * (usual and details)


def usual(**known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects with all of these keys, and now and then something else in their place."""
    odd = {key: st.one_of(good, good, good, strategies.leaves) for key, good in known.items()}
    return st.fixed_dictionaries(known) | st.fixed_dictionaries(odd)


_text = strategies.text
_parts = usual(type=st.just("output_text"), text=_text, annotations=st.just([]))
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
    strategies.items,
)


@given(usual(output=st.lists(_items, max_size=3), usage=strategies.usages, status=_text))
def test_any_response_is_read_the_same(document: Any) -> None:
    short_ways(codec.response_from_json, document)
