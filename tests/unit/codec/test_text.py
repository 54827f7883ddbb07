"""Plain text in and out of items, and the package's face."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

import gymmesh_responses as codec
from tests.unit.codec import strategies
from tests.unit.codec.equality import same_json


def test_the_face_is_sorted_and_complete() -> None:
    # Constants first, then classes, then functions, each in order.
    assert codec.__all__ == sorted(
        codec.__all__, key=lambda name: (not name.isupper(), name.islower(), name)
    )
    assert all(hasattr(codec, name) for name in codec.__all__)


@given(strategies.text, strategies.text)
def test_new_message(role: str, text: str) -> None:
    item = codec.new_message(role, text)
    assert same_json(codec.item_to_json(item), {"type": "message", "role": role, "content": text})
    assert same_json(codec.text_of(item), text)


@given(strategies.text, strategies.text)
def test_function_call_output(call_id: str, text: str) -> None:
    item = codec.function_call_output(call_id, text)
    document = {"type": "function_call_output", "call_id": call_id, "output": text}
    assert same_json(codec.item_to_json(item), document)
    assert item.WhichOneof("kind") == "function_call_output"
    assert same_json(codec.text_of(item), text)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (
            {
                "type": "message",
                "content": [
                    {"type": "output_text", "text": "a"},
                    {"type": "refusal", "refusal": "no"},
                    {"type": "input_image", "image_url": "u"},
                    {"type": "input_text", "text": "\ud800"},
                    "odd",
                ],
            },
            "a\ud800",
        ),
        (
            {
                "role": "assistant",
                "content": [
                    {"type": "output_text", "text": "a", "annotations": []},
                    {"type": "input_text", "text": "b"},
                    {"type": "output_text"},
                ],
            },
            "ab",
        ),
        ({"role": "user", "content": "a"}, "a"),
        ({"type": "message", "content": [{"type": "output_text", "text": 5}]}, ""),
        ({"type": "message"}, ""),
        ({"type": "message", "content": 5}, ""),
        ({"type": "function_call_output", "output": [{"type": "input_text", "text": "x"}]}, "x"),
        ({"type": "function_call", "arguments": "{}"}, ""),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]}, ""),
        ([1], ""),
    ],
)
def test_text_of(document: Any, text: str) -> None:
    assert codec.text_of(codec.item_from_json(document)) == text
