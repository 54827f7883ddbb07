"""What the taskset gymmesh-taskset shows of a task, and what it has judged; without verifiers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import UserError
from gymmesh_responses import items_to_list, params_from_json
from gymmesh_trainers.verifiers.prompts import prompt_of
from gymmesh_trainers.verifiers.transcript import (
    NotOneConversation,
    items_of,
    stop_reason_of,
    with_outputs,
)


def node(role: str, content: Any = None, *, sampled: bool = False, **more: Any) -> Any:
    message = {"reasoning_content": None, "tool_calls": None, **more}
    return SimpleNamespace(
        message=SimpleNamespace(role=role, content=content, **message), sampled=sampled
    )


def call(name: str, call_id: str, arguments: str = "{}") -> Any:
    return SimpleNamespace(name=name, id=call_id, arguments=arguments)


def branch(*nodes: Any) -> list[Any]:
    return [SimpleNamespace(nodes=list(nodes))]


SAID = branch(
    node("system", "Be brief."),
    node("user", "What is 2 + 2?"),
    node(
        "assistant",
        "",
        sampled=True,
        reasoning_content="I add.",
        tool_calls=[call("mcp__shop__add", "c1", '{"a": 2}'), call("add", "c2", "no JSON")],
    ),
    node("tool", "4", tool_call_id="c1"),
    node("tool", [SimpleNamespace(type="text", text="bad")], tool_call_id="c2"),
    node("assistant", "4", sampled=True),
    node("user", "Sure?"),
    node("assistant", "Yes.", sampled=True),
)


def test_what_followed_the_prompt_is_judged_with_the_environments_names_of_its_tools() -> None:
    items = items_to_list(items_of(SAID, ["add", "d"]))
    kinds = [(item["type"], item.get("role") or item.get("call_id")) for item in items]
    assert kinds == [
        ("reasoning", None),
        ("function_call", "c1"),
        ("function_call", "c2"),
        ("function_call_output", "c1"),
        ("function_call_output", "c2"),
        ("message", "assistant"),
        ("message", "user"),
        ("message", "assistant"),
    ]
    assert [item["name"] for item in items if item["type"] == "function_call"] == ["add", "add"]
    assert items[2]["arguments"] == "no JSON"
    assert items[4]["output"] == "bad"
    assert items_of([], []) == []


def test_answers_that_ended_the_episode_are_put_where_the_trace_has_none() -> None:
    asked = branch(
        node("user", "Go."),
        node("assistant", None, sampled=True, tool_calls=[call("look", "c1")]),
        node("tool", "a room", tool_call_id="c1"),
        node("assistant", None, sampled=True, tool_calls=[call("go", "c2"), call("unknown", "c3")]),
    )
    items = items_of(asked, ["look", "go"])
    found = items_to_list(with_outputs(items, [("look", "a room"), ("go", "You left.")]))
    assert [item["type"] for item in found] == [
        "function_call",
        "function_call_output",
        "function_call",
        "function_call",
        "function_call_output",
    ]
    assert (found[-1]["call_id"], found[-1]["output"]) == ("c2", "You left.")


@pytest.mark.parametrize(
    "others",
    [
        [node("user", "Sum up."), node("assistant", "It was 4.", sampled=True)],
        [*SAID[0].nodes[:-1], node("assistant", "No.", sampled=True)],
        # The same answer, sampled twice.
        [*SAID[0].nodes[:-1], node("assistant", "Yes.", sampled=True)],
    ],
    ids=["compaction", "another answer", "the same answer"],
)
def test_several_conversations_are_not_judged(others: list[Any]) -> None:
    for branches in (branch(*others) + SAID, SAID + branch(*others)):
        with pytest.raises(NotOneConversation, match="has 2 conversations"):
            items_of(branches, [])


def test_a_history_that_was_rendered_anew_is_one_conversation() -> None:
    whole = SAID[0].nodes
    first = branch(*whole[:3])
    # The template left the reasoning out, and the harness sends the answer back without it.
    again = node("assistant", None, tool_calls=whole[2].message.tool_calls)
    last = branch(*whole[:2], again, *whole[3:])
    names = ["add", "d"]
    assert items_of(first + last, names) == items_of(SAID, names)


@pytest.mark.parametrize(
    ("stopped", "truncated", "done", "reason"),
    [
        ("agent_completed", False, False, pb.STOP_REASON_MODEL_FINISHED),
        ("user_closed", False, False, pb.STOP_REASON_MODEL_FINISHED),
        ("agent_completed", True, False, pb.STOP_REASON_MAX_OUTPUT_TOKENS),
        ("max_turns", True, False, pb.STOP_REASON_MAX_STEPS),
        ("agent_timeout", False, False, pb.STOP_REASON_PROGRAM_TIMEOUT),
        ("environment_done", False, True, pb.STOP_REASON_ENVIRONMENT_DONE),
    ],
)
def test_why_it_stopped(
    stopped: str, truncated: bool, done: bool, reason: pb.StopReason.ValueType
) -> None:
    trace = SimpleNamespace(stop_condition=stopped, is_truncated=truncated)
    assert stop_reason_of(trace, done=done) == reason


def task(*items: Any, **params: Any) -> pb.Task:
    return pb.Task(task_id="t", params=params_from_json({"input": list(items), **params}))


def test_a_prompt_keeps_texts_images_and_instructions() -> None:
    image = "data:image/png;base64,AAAA"
    parts = [{"type": "input_text", "text": "Look:"}, {"type": "input_image", "image_url": image}]
    prompt = prompt_of(
        task(
            {"role": "developer", "content": "Rules."},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": [{"type": "output_text", "text": "I see."}]},
            instructions="Be brief.",
        )
    )
    assert prompt == [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": "Rules."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look:"},
                {"type": "image_url", "image_url": {"url": image}},
            ],
        },
        {"role": "assistant", "content": "I see."},
    ]


def test_a_prompt_that_verifiers_has_no_message_for_is_refused() -> None:
    called = {"type": "function_call", "name": "add", "arguments": "{}", "call_id": "c"}
    with pytest.raises(UserError, match="task t: its prompt has an item of type 'function_ca"):
        prompt_of(task(called))
    file = {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}
    with pytest.raises(UserError, match="a part of type 'input_file'"):
        prompt_of(task(file))
