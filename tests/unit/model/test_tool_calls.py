"""Tool calls in the text of an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_model.tool_calls import TOOL_PARSERS, ParsedAnswer, ParsedCall

ADD = ParsedCall("add", '{"left":1}')
SUB = ParsedCall("sub", "{}")


@pytest.mark.parametrize(
    ("parser", "text", "found"),
    [
        (
            "hermes",
            'Well.\n<tool_call>\n{"name": "add", "arguments": {"left": 1}}\n</tool_call>\n'
            '<tool_call>{"name": "sub"}</tool_call>',
            ParsedAnswer("Well.", (ADD, SUB)),
        ),
        (
            "hermes",
            '<tool_call>{"name": "add", "arguments": {"left": 1}}',
            ParsedAnswer("", (ADD,)),
        ),
        (
            "hermes",
            "<tool_call>{broken</tool_call>",
            ParsedAnswer("<tool_call>{broken</tool_call>"),
        ),
        ("hermes", " no call ", ParsedAnswer(" no call ")),
        ("llama", '{"name": "add", "parameters": {"left": 1}}', ParsedAnswer("", (ADD,))),
        ("llama", 'So {"name": "add"}', ParsedAnswer('So {"name": "add"}')),
        (
            "mistral",
            '[TOOL_CALLS][{"name": "add", "arguments": {"left": 1}}, {"name": "sub"}]',
            ParsedAnswer("", (ADD, SUB)),
        ),
        ("mistral", '[TOOL_CALLS][{"name": 1}]', ParsedAnswer('[TOOL_CALLS][{"name": 1}]')),
    ],
)
def test_what_is_a_call(parser: str, text: str, found: ParsedAnswer) -> None:
    assert TOOL_PARSERS[parser](text) == found


@given(st.sampled_from(sorted(TOOL_PARSERS)), st.text(alphabet='<tool_call>/{}[]":, a1'))
def test_no_text_is_lost_where_there_is_no_call(parser: str, text: str) -> None:
    parsed = TOOL_PARSERS[parser](text)
    assert parsed.calls or parsed.text == text
