"""The bridge that lets a model without tool calling call tools."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_model.local import ConstraintOptions, constrain, interpret

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def tool(name: str = "calculator", **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def request(**extra: Any) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": "1 + 1?"}],
        "tools": [tool(expression={"type": "string", "pattern": "^[0-9+]{1,9}$"})],
        **extra,
    }


def answered(content: str, finish_reason: str = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "content": content}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}]}


def schema_of(body: dict[str, Any]) -> dict[str, Any]:
    _, _, written = constrain(body)["grammar"].partition("%json ")
    schema: dict[str, Any] = json.loads(written)
    del schema["x-guidance"]
    return schema


def forms(schema: dict[str, Any]) -> list[object]:
    """What each allowed step starts with: a tool's name, or "answer"."""
    steps = schema.get("anyOf", [schema])
    return [step["properties"].get("tool", {"const": "answer"})["const"] for step in steps]


def test_tools_become_a_constraint_with_the_argument_pattern() -> None:
    body = constrain(request(temperature=0.7), ConstraintOptions(answer_pattern="-?[0-9]+"))
    assert "tools" not in body
    assert body["temperature"] == 0.7
    assert "^[0-9+]{1,9}$" in body["grammar"]
    assert "^(?:-?[0-9]+)$" in body["grammar"]
    assert "calculator" in body["messages"][0]["content"]


@pytest.mark.parametrize(
    ("choice", "allowed"),
    [
        ("auto", ["a", "b", "answer"]),
        ("required", ["a", "b"]),
        ({"type": "function", "function": {"name": "b"}}, ["b"]),
    ],
)
def test_tool_choice_decides_the_allowed_steps(choice: object, allowed: list[str]) -> None:
    body = request(tools=[tool("a"), tool("b")], tool_choice=choice)
    assert forms(schema_of(body)) == allowed


def test_no_tools_and_tool_choice_none_leave_the_answer_free() -> None:
    for body in (request(tools=[]), request(tool_choice="none")):
        result = constrain(body)
        assert set(result) == {"messages"}
        assert interpret(answered("plain"), body) == answered("plain")


def test_the_callers_response_format_is_kept_without_tools_and_merged_with_them() -> None:
    shape = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": shape}}
    kept = constrain(request(tools=[], response_format=wanted), ConstraintOptions("[0-9]"))
    assert kept["response_format"] == wanted
    merged = schema_of(request(response_format=wanted))["anyOf"][-1]
    assert merged["properties"]["answer"]["properties"] == shape["properties"]
    back = interpret(answered('{"answer": {"n":1}}'), request(response_format=wanted))
    assert back["choices"][0]["message"]["content"] == '{"n":1}'


def test_call_first_offers_the_answer_only_after_a_result_and_keeps_the_prompt() -> None:
    options = ConstraintOptions(call_first=True)
    first = constrain(request(), options)
    assert '"answer"' not in first["grammar"]
    call = {"id": "c", "function": {"name": "calculator", "arguments": '{"expression":"1+1"}'}}
    history = [
        *request()["messages"],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "2"},
    ]
    second = constrain(request(messages=history), options)
    assert '"answer"' in second["grammar"]
    assert second["messages"][:2] == first["messages"]


def test_history_reads_as_the_models_own_steps() -> None:
    calls = [
        {"id": "1", "function": {"name": "a", "arguments": '{"x": 1}'}},
        {"id": "2", "function": {"name": "b", "arguments": "{broken"}},
    ]
    history = [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        {"role": "tool", "tool_call_id": "2", "content": "two"},
        {"role": "assistant", "content": "done"},
    ]
    messages = constrain(request(messages=history))["messages"]
    assert [message["role"] for message in messages] == ["system", "assistant", "user", "assistant"]
    assert messages[0]["content"].startswith("Be brief.\n")
    assert messages[1]["content"] == (
        '{"tool":"a","arguments":{"x":1}}\n{"tool":"b","arguments":"{broken"}'
    )
    assert messages[2]["content"] == "The result of a is one\nThe result of b is two"
    assert messages[3]["content"] == '{"answer":"done"}'


def test_an_image_stays_where_it_is() -> None:
    content = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    messages = constrain(request(messages=[{"role": "user", "content": content}]))["messages"]
    assert messages[-1]["content"] == content


def test_a_call_keeps_its_arguments_to_the_letter_and_gets_its_own_id() -> None:
    text = '{"tool": "calculator","arguments": {"expression": "1", "n": 1.0e400}}'
    seen = [interpret(answered(text), request())["choices"][0] for _ in range(2)]
    calls = [choice["message"]["tool_calls"][0] for choice in seen]
    assert calls[0]["function"]["arguments"] == '{"expression": "1", "n": 1.0e400}'
    assert calls[0]["id"] != calls[1]["id"]
    assert seen[0]["finish_reason"] == "tool_calls"
    assert seen[0]["message"]["content"] is None


@pytest.mark.parametrize("text", ['{"tool":"calculator","argum', '{"answer":"4'])
def test_a_step_that_broke_off_is_passed_on_as_a_truncated_answer(text: str) -> None:
    choice = interpret(answered(text, "stop"), request())["choices"][0]
    assert choice["message"]["content"] == text
    assert choice["finish_reason"] == "length"


def test_an_endpoint_that_ignores_the_constraint_is_taken_at_its_word() -> None:
    assert interpret(answered("It is 2."), request()) == answered("It is 2.")


def test_an_answer_pattern_that_the_engine_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="answer_pattern"):
        ConstraintOptions(answer_pattern=r"(?=1)\d")


@given(st.text())
def test_any_answer_comes_through(answer: str) -> None:
    text = json.dumps({"answer": answer})
    assert interpret(answered(text), request())["choices"][0]["message"]["content"] == answer


@given(st.dictionaries(st.text(), JSON_VALUES, max_size=4), st.booleans())
def test_any_arguments_come_through(arguments: dict[str, Any], ascii_only: bool) -> None:
    step = {"tool": "calculator", "arguments": arguments}
    text = json.dumps(step, ensure_ascii=ascii_only)
    message = interpret(answered(text), request())["choices"][0]["message"]
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == arguments


@given(st.text(), JSON_VALUES, st.text())
def test_nothing_received_is_changed_and_nothing_raises(
    content: str, parameters: object, arguments: str
) -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": arguments}}
    body = {
        "messages": [
            {"role": "user", "content": content},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": content},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}],
    }
    response = answered(content)
    kept = copy.deepcopy((body, response))
    json.dumps(constrain(body))
    interpret(response, body)
    assert (body, response) == kept
