"""What programs send back of an answer names the recorded items, whatever they do to the rest.

Each program is a function from an answer as it was written to the history that it sends next.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_agent.gateway.dialects import DIALECTS
from gymmesh_agent.gateway.minted import answers_minted, minted_of
from gymmesh_agent.gateway.request import GatewayRequest
from gymmesh_responses import text_of
from tests.unit.gateway_dialects import answers
from tests.unit.gateway_dialects.answers import TAG, answer_of, call, message, reasoning
from tests.unit.gateway_dialects.requests import read
from tests.unit.gateway_dialects.test_write import BODIES

Json = dict[str, Any]
Program = Callable[[Json], list[Json]]


def respelled(arguments: str) -> str:
    """Arguments as JavaScript writes them anew; what is not JSON stays."""
    try:
        return json.dumps(json.loads(arguments), separators=(",", ":"), ensure_ascii=False)
    except ValueError:
        return arguments


# ---- Chat: the message goes back, and a tool's message for each call ---------------------------


def _chat_outputs(said: Json) -> list[Json]:
    return [
        {"role": "tool", "tool_call_id": one["id"], "content": "ok"}
        for one in said.get("tool_calls", [])
    ]


def mini_swe_agent(document: Json) -> list[Json]:
    """Sends the message as it came."""
    said = document["choices"][0]["message"]
    return [said, *_chat_outputs(said)]


def opencode(document: Json) -> list[Json]:
    """Writes the arguments anew and keeps the reasoning."""
    said = {**document["choices"][0]["message"]}
    if "tool_calls" in said:
        said["tool_calls"] = [_respelled_call(one) for one in said["tool_calls"]]
    said["content"] = said["content"] or ""
    return [said, *_chat_outputs(said)]


def _respelled_call(one: Json) -> Json:
    if one["type"] != "function":
        return one
    function = {**one["function"], "arguments": respelled(one["function"]["arguments"])}
    return {**one, "function": function}


def openhands(document: Json) -> list[Json]:
    """Writes the arguments anew, drops the reasoning, and has texts as parts."""
    said = opencode(document)[0]
    said.pop("reasoning_content", None)
    said["content"] = [{"type": "text", "text": said["content"]}] if said["content"] else None
    return [said, *_chat_outputs(said)]


# ---- Responses: the output items go back -------------------------------------------------------


def openai_agents(document: Json) -> list[Json]:
    """Sends the items as they came."""
    return [*document["output"], *_responses_outputs(document)]


def codex(document: Json) -> list[Json]:
    """Drops ids, statuses and annotations, and keeps what is encrypted."""
    kept = []
    for item in document["output"]:
        one = {key: value for key, value in item.items() if key not in ("id", "status")}
        if item["type"] == "message":
            one["content"] = [
                {key: value for key, value in part.items() if key != "annotations"}
                for part in item["content"]
            ]
        kept.append(one)
    return [*kept, *_responses_outputs(document)]


def _responses_outputs(document: Json) -> list[Json]:
    return [
        {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": "ok"}
        for item in document["output"]
        if "call_id" in item
    ]


# ---- Anthropic: the blocks go back -------------------------------------------------------------


def claude_code(document: Json) -> list[Json]:
    """Sends the blocks as they came and marks the last for the cache."""
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}
        for block in document["content"]
        if block["type"] == "tool_use"
    ]
    blocks = [*results, {"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}]
    return [
        {"role": "assistant", "content": document["content"]},
        {"role": "user", "content": blocks},
    ]


# ---- Gemini: the parts go back -----------------------------------------------------------------


def gemini_sdk(document: Json) -> list[Json]:
    """Sends the parts as they came."""
    content = document["candidates"][0]["content"]
    responses = [
        {
            "functionResponse": {
                "id": part["functionCall"]["id"],
                "name": part["functionCall"]["name"],
                "response": {"output": "ok"},
            }
        }
        for part in content["parts"]
        if "functionCall" in part
    ]
    return [content, {"role": "user", "parts": responses}]


def gemini_cli(document: Json) -> list[Json]:
    """Drops thoughts."""
    content, outputs = gemini_sdk(document)
    parts = [part for part in content["parts"] if not part.get("thought")]
    return [{**content, "parts": parts}, outputs]


def without_ids(document: Json) -> list[Json]:
    """An older program of Gemini: calls and responses without ids, signatures kept."""
    content, outputs = gemini_sdk(document)
    parts = [
        {**part, "functionCall": {**part["functionCall"], "id": None}}
        if "functionCall" in part
        else part
        for part in content["parts"]
    ]
    responses = [
        {"functionResponse": {**part["functionResponse"], "id": None}} for part in outputs["parts"]
    ]
    return [{**content, "parts": parts}, {**outputs, "parts": responses}]


PROGRAMS: dict[str, tuple[Program, ...]] = {
    "chat": (mini_swe_agent, opencode, openhands),
    "responses": (openai_agents, codex),
    "anthropic": (claude_code,),
    "gemini": (gemini_sdk, gemini_cli, without_ids),
}
HISTORY = {"chat": "messages", "responses": "input", "anthropic": "messages", "gemini": "contents"}
CASES = [
    pytest.param(dialect, program, id=program.__name__)
    for dialect, programs in PROGRAMS.items()
    for program in programs
]


def echoed(dialect: str, program: Program, output: list[Json]) -> GatewayRequest:
    """What is read of the request that follows this answer."""
    body = BODIES[dialect]
    written = DIALECTS[dialect].write(read(dialect, body), answer_of(output))
    return read(dialect, {**body, HISTORY[dialect]: program(json.loads(written))})


@pytest.mark.parametrize(("dialect", "program"), CASES)
@given(answers.outputs)
def test_calls_name_themselves(dialect: str, program: Program, output: list[Json]) -> None:
    request = echoed(dialect, program, output)
    calls = [
        index
        for index, item in enumerate(output)
        if item["type"] == "function_call"
        or (item["type"] == "custom_tool_call" and dialect in ("chat", "responses"))
    ]
    found = [minted_of(item) for item in request.items if _is_call(item)]
    assert [(one.tag, one.call_id, one.output) for one in found if one] == [
        (TAG, "c1", index) for index in calls
    ]
    answered = [one for item in request.items if (one := answers_minted(item))]
    assert sorted(one.output for one in answered) == calls


def _is_call(item: pb.Item) -> bool:
    return item.HasField("function_call") or item.opaque.type == "custom_tool_call"


KEEPS_REASONING = [
    pytest.param("responses", openai_agents, id="openai_agents"),
    pytest.param("responses", codex, id="codex"),
    pytest.param("anthropic", claude_code, id="claude_code"),
    pytest.param("gemini", gemini_sdk, id="gemini_sdk"),
]


@pytest.mark.parametrize(("dialect", "program"), KEEPS_REASONING)
def test_reasoning_names_itself(dialect: str, program: Program) -> None:
    output = [reasoning("hm"), message("I look."), call("f", "{}"), reasoning("then")]
    request = echoed(dialect, program, output)
    found = [minted_of(item) for item in request.items if item.HasField("reasoning")]
    assert [one.output if one else None for one in found] == [0, 3]


@pytest.mark.parametrize(("dialect", "program"), CASES)
@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), max_size=3))
def test_texts_come_back(dialect: str, program: Program, texts: list[str]) -> None:
    request = echoed(dialect, program, [message(*texts), call("f", "{}")])
    said = [text_of(item) for item in request.items if item.message.role == "assistant"]
    assert "".join(said) == "".join(texts)


@pytest.mark.parametrize(("dialect", "program"), CASES)
def test_a_history_read_twice_is_one_history(dialect: str, program: Program) -> None:
    output = [reasoning("hm"), message("a", "b"), call("f", '{"x": 1.0}')]
    first, second = (echoed(dialect, program, output) for _ in range(2))
    assert first.digest == second.digest
    assert first.items == second.items
