"""A conversation of ours as messages that a taskset of verifiers scores."""

from __future__ import annotations

from gymmesh_resource.environments.verifiers.conversation import conversation_of
from gymmesh_responses import items_from_json, params_from_json

PARAMS = {
    "instructions": "Be brief.",
    "input": [
        {"role": "developer", "content": "Use the tools."},
        {"role": "user", "content": "What is 2 + 2?"},
        {"role": "assistant", "content": "An example answer."},
        {"role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
    ],
}
ITEMS = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I add."}]},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
    },
    {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 2}'},
    {"type": "function_call", "call_id": "c2", "name": "add", "arguments": "not JSON"},
    {"type": "function_call_output", "call_id": "c1", "output": "4"},
    {"type": "function_call_output", "call_id": "c2", "output": "wrong"},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "So."}]},
    {"type": "message", "role": "assistant", "content": "4"},
    {"type": "message", "role": "user", "content": "Are you sure?"},
    {"type": "message", "role": "assistant", "content": "Yes."},
]


def test_an_answer_is_one_message_and_says_who_wrote_it() -> None:
    assert conversation_of(params_from_json(PARAMS), items_from_json(ITEMS)) == [
        {"role": "system", "content": "Be brief.", "sampled": False},
        {"role": "system", "content": "Use the tools.", "sampled": False},
        {"role": "user", "content": "What is 2 + 2?", "sampled": False},
        {"role": "assistant", "content": "An example answer.", "sampled": False},
        {"role": "user", "content": "Go on.", "sampled": False},
        {
            "role": "assistant",
            "content": "Let me see.",
            "sampled": True,
            "reasoning_content": "I add.",
            "tool_calls": [
                {"id": "c1", "name": "add", "arguments": '{"a": 2}'},
                {"id": "c2", "name": "add", "arguments": "not JSON"},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "4", "sampled": False},
        {"role": "tool", "tool_call_id": "c2", "content": "wrong", "sampled": False},
        {"role": "assistant", "content": "4", "sampled": True, "reasoning_content": "So."},
        {"role": "user", "content": "Are you sure?", "sampled": False},
        {"role": "assistant", "content": "Yes.", "sampled": True},
    ]
