"""The trajectory that tests may read."""

from __future__ import annotations

import json

from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource.environments.harbor.trajectory import trajectory
from gymmesh_responses import new_message


def called(call_id: str, arguments: bytes) -> responses_pb2.Item:
    call = responses_pb2.FunctionCall(name="shell", call_id=call_id, arguments=arguments)
    return responses_pb2.Item(function_call=call)


def answered(call_id: str, text: bytes) -> responses_pb2.Item:
    output = responses_pb2.FunctionCallOutput(call_id=call_id, text=text)
    return responses_pb2.Item(function_call_output=output)


def test_an_answer_of_the_model_is_a_step() -> None:
    items = [
        new_message("assistant", "I look."),
        called("a", b'{"command": "ls"}'),
        called("b", b"[1]"),
        answered("b", b"no"),
        answered("a", b"file"),
        answered("c", b"of no call"),
        new_message("assistant", "Done."),
    ]
    made = json.loads(trajectory("Do it.", items, "s-1"))
    assert (made["schema_version"], made["session_id"]) == ("ATIF-v1.8", "s-1")
    assert made["final_metrics"] == {"total_steps": 3}
    assert made["steps"] == [
        {"step_id": 1, "source": "user", "message": "Do it."},
        {
            "step_id": 2,
            "source": "agent",
            "message": "I look.",
            "tool_calls": [
                {"tool_call_id": "a", "function_name": "shell", "arguments": {"command": "ls"}},
                {"tool_call_id": "b", "function_name": "shell", "arguments": {"_raw": "[1]"}},
            ],
            "observation": {
                "results": [
                    {"source_call_id": "b", "content": "no"},
                    {"source_call_id": "a", "content": "file"},
                ]
            },
        },
        {"step_id": 3, "source": "agent", "message": "Done."},
    ]


def test_what_follows_an_output_is_another_answer() -> None:
    items = [called("a", b"{}"), answered("a", b"x"), called("a", b"{}"), answered("a", b"y")]
    steps = json.loads(trajectory("Do it.", items, ""))["steps"]
    assert [step["observation"]["results"][0]["content"] for step in steps[1:]] == ["x", "y"]
