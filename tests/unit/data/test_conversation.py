from __future__ import annotations

from typing import Any

import pytest

from gymmesh_client import UserError
from gymmesh_data import ChatStyle, conversation_of, stored_rollout
from gymmesh_data.conversation import arguments_as_text
from tests.unit.data.rows import call, result, row, text

REASONING = {
    "type": "reasoning",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Add."}],
}


def messages(*output: dict[str, Any], style: ChatStyle | None = None, **more: Any) -> Any:
    return conversation_of(stored_rollout(row(*output, **more), "rows.jsonl:1"), style).messages


def test_a_model_call_is_one_message() -> None:
    said = messages(
        REASONING,
        text("I add."),
        call("add", '{"left": 2}', "c1"),
        call("add", '{"left": 3}', "c2"),
        result("c1", "2"),
        result("c2", "5"),
        text("5"),
    )
    assert [one["role"] for one in said] == [
        "user", "assistant", "tool", "tool", "assistant",
    ]  # fmt: skip
    assert said[1]["content"] == "I add."
    assert said[1]["reasoning_content"] == "Add."
    assert [one["function"]["arguments"] for one in said[1]["tool_calls"]] == [
        '{"left": 2}',
        '{"left": 3}',
    ]
    assert said[2] == {"role": "tool", "tool_call_id": "c1", "content": "2"}
    assert said[4] == {"role": "assistant", "content": "5"}


def test_calls_that_follow_one_another_are_messages_of_their_own() -> None:
    tokens = {"generation_token_ids": [1], "prompt_token_ids": [0], "generation_log_probs": [0.0]}
    assert len(messages(text("a"), text("b"))) == 3
    assert len(messages(text("a"), REASONING, text("b"))) == 3
    # Where tokens say so, even what could be one message is two.
    assert len(messages(text("a"), call("f", "{}", "c1"))) == 2
    assert len(messages(text("a", **tokens), call("f", "{}", "c1", **tokens))) == 3


def test_a_call_is_followed_by_its_result_whatever_the_model_said_beside_it() -> None:
    found = conversation_of(
        stored_rollout(
            row(
                text("First"),
                call("add", "{}", "c1"),
                REASONING,
                call("add", "{}", "c2"),
                text("both."),
                result("c1", "1"),
                result("c2", "2"),
                text("Done."),
            ),
            "x",
        )
    )
    roles = [one["role"] for one in found.messages]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    answer = found.messages[1]
    assert answer["content"] == "First\nboth."
    assert answer["reasoning_content"] == "Add."
    assert [one["id"] for one in answer["tool_calls"]] == ["c1", "c2"]
    # The order within the answer has no place in a message, which is said.
    assert sum(found.losses.values()) == 2


def test_the_prompt_ends_where_the_model_first_answers() -> None:
    prompt = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "message", "role": "assistant", "content": "Hello."},
        {"role": "user", "content": "2 + 3?"},
    ]
    params = {"instructions": "Add."}
    rollout = stored_rollout(row(text("5"), prompt=prompt, params=params), "x")
    said = conversation_of(rollout)
    assert [one["role"] for one in said.prompt] == [
        "system", "system", "user", "assistant", "user",
    ]  # fmt: skip
    assert said.messages[len(said.prompt) :] == [{"role": "assistant", "content": "5"}]
    developer = conversation_of(rollout, ChatStyle(developer_role=True))
    assert developer.messages[1]["role"] == "developer"


def test_first_items_stand_for_the_input() -> None:
    first = [{"role": "user", "content": "What the environment said"}]
    assert messages(text("5"), first_items=first)[0]["content"] == "What the environment said"


def test_images_stay_images() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}
    prompt = [{"role": "user", "content": [{"type": "input_text", "text": "What?"}, image]}]
    assert messages(text("A cat"), prompt=prompt)[0]["content"] == [
        {"type": "text", "text": "What?"},
        {
            "type": "image_url",
            "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"},
        },
    ]


def test_arguments_are_objects_for_templates() -> None:
    style = ChatStyle(arguments_as_objects=True)
    rollout = stored_rollout(row(call("f", '{"a": 1}', "c1"), call("f", "{a", "c2")), "x")
    said = conversation_of(rollout, style)
    calls = said.messages[1]["tool_calls"]
    assert calls[0]["function"]["arguments"] == {"a": 1}
    assert calls[1]["function"]["arguments"] == "{a"
    assert (sum(said.changed.values()), sum(said.losses.values())) == (1, 0)
    assert arguments_as_text(said.messages) == 1


def test_reasoning_that_is_left_out_is_counted() -> None:
    rollout = stored_rollout(row(REASONING, text("5")), "x")
    said = conversation_of(rollout, ChatStyle(keep_reasoning=False))
    assert said.messages[1] == {"role": "assistant", "content": "5"}
    assert dict(said.losses) == {"reasoning": 1}


def test_what_has_no_place_is_counted() -> None:
    said = conversation_of(
        stored_rollout(
            row(
                {"type": "web_search_call", "id": "w"},
                {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [
                        {"type": "output_text", "text": "5", "annotations": [{"url": "u"}]},
                        {"type": "output_audio", "data": "AA=="},
                    ],
                },
                params={"tools": [{"type": "web_search"}, {"type": "function", "name": "add"}]},
            ),
            "x",
        )
    )
    assert said.tools == [{"type": "function", "function": {"name": "add"}}]
    assert dict(said.losses) == {
        "items of type web_search_call": 1,
        "reasoning without readable text": 1,
        "annotations of texts": 1,
        "parts of type output_audio": 1,
        "tools of type web_search": 1,
    }


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"type": "message", "role": "robot", "content": "x"}, ".role: must be 'system'"),
        ({"type": "message", "content": "x"}, ".role: must be a string"),
        ({"type": "message", "role": "user", "content": ["x"]}, ".content[0]: must be an object"),
        ({"type": "function_call", "name": "f", "arguments": {}}, ".arguments: must be JSON text"),
        ({"type": "function_call_output", "output": "x"}, ".call_id: must be a string"),
        ({"type": "reasoning", "content": "x"}, ": 'content' and 'summary' must be lists"),
    ],
)
def test_a_malformed_item_is_named(item: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as raised:
        messages(text("5"), item)
    assert str(raised.value).startswith(f"rows.jsonl:1: response.output[1]{words}")


def test_a_place_with_braces_is_named_as_it_is() -> None:
    said = stored_rollout(row(text("5"), {"type": "reasoning", "content": "x"}), "a/{b}/{}.jsonl:1")
    with pytest.raises(UserError) as raised:
        conversation_of(said)
    assert str(raised.value).startswith("a/{b}/{}.jsonl:1: response.output[1]: 'content'")
