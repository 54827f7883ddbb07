"""What a model wrote and what a renderer cannot do never fail a call: renderers are not ours."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from gymmesh_model.backends.families import ModelFamily
from gymmesh_model.tokens import Prefix, pack_ids
from gymmesh_model.tool_calls import ParsedCall
from tests.support.vllm_server import decode, encode


class JsonRenderer:
    """Reads an answer as the JSON text of one call's arguments, and continues no prompt."""

    def render_ids(self, messages: list[Any], **_: Any) -> list[int]:
        raise ValueError("No messages provided.")

    def parse_response(self, token_ids: list[int], **_: Any) -> Any:
        call = SimpleNamespace(
            status="ok",
            name="look",
            id=None,
            arguments=json.loads(decode(token_ids)),
            token_span=(0, len(token_ids)),
        )
        return SimpleNamespace(content="", reasoning_content=None, tool_calls=[call])

    def get_stop_token_ids(self) -> list[int]:
        return []

    def bridge_to_next_turn(self, *_: Any, **__: Any) -> Any:
        raise KeyError("role")


@pytest.mark.parametrize(
    "text",
    [
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": ' + "1" * 5000 + "}",
        '{"a": ' + "[" * 100_000,
        '"text"',
        "[1]",
        "{",
    ],
)
def test_an_answer_that_cannot_be_read_stays_text(text: str) -> None:
    read = ModelFamily(JsonRenderer()).read(encode(text), [1], None, decode)
    assert (read.text, read.calls) == (text, ())


def test_an_answer_that_can_be_read_is_a_call() -> None:
    read = ModelFamily(JsonRenderer()).read(encode('{"a": 1}'), [1], None, decode)
    assert (read.text, read.calls) == ("", (ParsedCall("look", '{"a":1}'),))


def test_what_a_renderer_fails_on_is_left_to_the_template() -> None:
    family = ModelFamily(JsonRenderer())
    assert not family.agrees(lambda messages, tools: [1])
    prefix = Prefix(pack_ids([1, 2]), 1, 1, 1, 1, closed=True)
    assert family.behind(prefix, [{"content": "and"}], None) is None
