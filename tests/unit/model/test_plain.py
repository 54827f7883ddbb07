"""The shortcuts of the conversion: where they apply, they say what the long way says."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.convert import (
    echo_of,
    from_chat,
    messages_from_input,
    messages_from_items,
    plain_response,
    to_chat,
)
from gymmesh_model.convert import messages as messages_module
from gymmesh_model.errors import AnswerInvalid
from gymmesh_responses import (
    CodecError,
    dumps,
    items_from_json,
    loads,
    new_message,
    params_from_json,
    params_to_dict,
    response_from_json,
    settings_to_dict,
)
from gymmesh_runtime.errors import MeshError
from tests.unit.model import documents

Json = dict[str, Any]
PARAMS: Json = {"model": "m", "temperature": 0.5, "tools": [], "metadata": {"a": "b"}}

_ODD: list[Any] = [
    *(None, "", "x", "\ud800", 0, 7, -1, 2**63, 2**70, 1.5, True, False),
    *([], [1], {}, {"a": None}),
]
# Copies, since some of the tests put one into another.
odd: st.SearchStrategy[Any] = st.sampled_from(_ODD).map(copy.deepcopy)


def ids() -> Callable[[str], str]:
    numbers = itertools.count()
    return lambda prefix: f"{prefix}{next(numbers)}"


def the_long_way(answer: Json, params: Json) -> Any:
    return response_from_json(from_chat(answer, params, new_id=ids(), now=7))


def plain(answer: Json, params: Json = PARAMS) -> Any:
    return plain_response(answer, params, new_id=ids(), now=7)


def check(answer: Json, params: Json = PARAMS) -> bool:
    """Whether the shortcut applies; if so it must agree, to the byte."""
    before = dumps(answer), dumps(params)
    made = plain(answer, params)
    assert (dumps(answer), dumps(params)) == before
    if made is None:
        return False
    echoed = plain_response(answer, params, new_id=ids(), now=7, echo=echo_of(params))
    assert echoed == made
    wanted = the_long_way(answer, params)
    assert made == wanted
    assert made.SerializeToString(deterministic=True) == wanted.SerializeToString(
        deterministic=True
    )
    return True


def answer_of(message: Json, finish: Any = "stop", **more: Any) -> Json:
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    made = {"id": "c-1", "created": 3, "model": "m-1", "choices": [choice]}
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    return made | {"usage": usage} | more


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1'}}
SHORTCUT: dict[str, Json] = {
    "text": answer_of({"role": "assistant", "content": "hello"}),
    "nothing": answer_of({"role": "assistant", "content": None}),
    "empty": answer_of({"content": "", "tool_calls": [], "refusal": None, "annotations": []}),
    "cut short": answer_of({"content": "hel"}, "length"),
    "cut short in its reasoning": answer_of({"content": None, "reasoning": "hm"}, "length"),
    "no finish": answer_of({"content": "x"}, None),
    "calls": answer_of({"content": None, "tool_calls": [CALL, CALL]}, "tool_calls"),
    "cut short in a call": answer_of({"content": "so", "tool_calls": [CALL]}, "length"),
    "everything": answer_of(
        {"content": "hello", "reasoning_content": "hm", "tool_calls": [CALL]},
        "tool_calls",
        service_tier="default",
        system_fingerprint="fp",
        usage={
            "prompt_tokens": 5,
            "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 1, "other": 4},
        },
    ),
    "no usage": answer_of({"content": "x"}, usage=None),
    "no ids": answer_of({"content": "x"}, id=None, created=None),
    "empty lists of logprobs": {
        **answer_of({}),
        "choices": [{"message": {"content": "x"}, "finish_reason": "eos", "logprobs": {}}],
    },
}


@pytest.mark.parametrize("name", SHORTCUT)
@pytest.mark.parametrize("params", [{}, PARAMS, {"input": "x", "text": {"format": {"a": [1.0]}}}])
def test_usual_answers_take_the_shortcut(name: str, params: Json) -> None:
    assert check(SHORTCUT[name], params)


@pytest.mark.parametrize(
    "message",
    [
        {"content": [{"type": "text", "text": "x"}]},
        {"content": "x", "refusal": "no"},
        {"content": "x", "annotations": [{"type": "a"}]},
        {"content": "\ud800"},
        {"content": "x", "function_call": {"name": "f", "arguments": ""}},
        {"content": "x", "tool_calls": [{**CALL, "id": None}]},
        {"content": "x", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {}}}]},
        {"content": "x", "tool_calls": [{**CALL, "function": {"name": None}}]},
    ],
)
def test_unusual_answers_do_not(message: Json) -> None:
    assert plain(answer_of(message)) is None


def varied(base: Json, data: st.DataObject) -> Json:
    """An answer with some of its values, at any depth, replaced or left out."""
    made: Json = loads(dumps(base))
    for _ in range(data.draw(st.integers(0, 3))):
        place: Any = made
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            inside = isinstance(place[key], dict | list) and place[key]
            if inside and data.draw(st.booleans()):
                place = place[key]
            elif isinstance(place, dict) and data.draw(st.booleans()):
                del place[key]
                break
            else:
                place[key] = data.draw(odd)
                break
    return made


@given(st.sampled_from(sorted(SHORTCUT)), st.data())
def test_the_shortcut_agrees_with_the_long_way(name: str, data: st.DataObject) -> None:
    answer = varied(SHORTCUT[name], data)
    try:
        the_long_way(answer, PARAMS)
    except (AnswerInvalid, CodecError):
        assert plain(answer) is None
    else:
        check(answer)


@given(st.dictionaries(st.sampled_from([*sorted(PARAMS), "store", "user"]), odd))
def test_whatever_the_parameters(params: Json) -> None:
    answer = SHORTCUT["everything"]
    try:
        the_long_way(answer, params)
    except CodecError:
        assert plain(answer, params) is None
    else:
        check(answer, params)


message_items = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system", "developer", "tool"]),
        "content": documents.texts
        | odd
        | st.lists(
            st.fixed_dictionaries(
                {"type": st.sampled_from(["input_text", "output_text", "text", "refusal"])},
                optional={"text": documents.texts | odd, "annotations": odd, "x": odd},
            ),
            max_size=2,
        ),
    },
    optional={
        "type": st.sampled_from(["message", "reasoning", None]),
        "id": odd,
        "status": odd,
        "name": odd,
        "x": odd,
    },
)
output = {"type": "function_call_output", "call_id": "c0", "output": "4"}
items = st.lists(message_items | documents.model_outputs().map(lambda made: made[-1]), max_size=5)


def messages(value: Any) -> Any:
    try:
        return messages_from_input(value, "be kind")
    except MeshError as error:
        return str(error), error.metadata


@given(items, st.booleans())
def test_messages_take_the_shortcut_or_the_long_way(value: list[Any], answered: bool) -> None:
    value = [*value, output] if answered else value
    taken = messages(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages_module, "plain_text", lambda item: None)
        assert messages(value) == taken


def test_plain_messages_take_the_shortcut(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*given: object) -> None:
        raise AssertionError("the long way")

    monkeypatch.setattr(messages_module._Transcript, "add", never)
    part = {"type": "output_text", "text": "b", "annotations": [], "logprobs": []}
    made = messages_from_input(
        [
            {"role": "system", "content": "a"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "b"}]},
            {"type": "message", "id": "m", "role": "assistant", "content": [part], "status": "x"},
        ]
    )
    assert [one["content"] for one in made] == ["a", "b", "b"]


def test_plain_items_take_the_shortcut(monkeypatch: pytest.MonkeyPatch) -> None:
    part = {"type": "output_text", "text": "c", "annotations": [], "logprobs": []}
    call = {"type": "function_call", "call_id": "1", "name": "add", "arguments": "{}", "id": "fc"}
    value = [
        {"role": "system", "content": "a"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "b"}]},
        {"type": "message", "id": "m", "role": "assistant", "content": [part], "status": "x"},
        call,
        {"type": "function_call_output", "call_id": "1", "output": "3"},
    ]
    long_way = messages_from_input(value)

    def never(*given: object) -> None:
        raise AssertionError("the long way")

    monkeypatch.setattr(messages_module, "item_to_dict", never)
    assert messages_from_items(items_from_json(value)) == long_way


def as_messages(value: list[Any]) -> Any:
    read = items_from_json(value)
    before = [item.SerializeToString(deterministic=True) for item in read]
    try:
        return messages_from_items(read, "be kind")
    except MeshError as error:
        return str(error), error.metadata
    finally:
        assert before == [item.SerializeToString(deterministic=True) for item in read]


@given(items, st.booleans())
def test_items_that_are_messages_still_become_the_same(value: list[Any], answered: bool) -> None:
    value = [*value, output] if answered else value
    assert as_messages(value) == messages(value)


@pytest.mark.parametrize("value", [[7], [None], [{"type": "x"}], [{}], [[]]])
def test_what_is_no_item_fails_alike(value: list[Any]) -> None:
    assert as_messages(value) == messages(value)


def test_an_item_of_no_kind_is_refused() -> None:
    with pytest.raises(MeshError, match=r"input\[1\]") as caught:
        messages_from_items([new_message("user", "hello"), responses_pb2.Item()])
    assert caught.value.reason_name == "FIELD_INVALID"


@given(documents.params)
def test_a_request_of_items_is_the_same(params: Json) -> None:
    read = params_from_json(params)
    settings = settings_to_dict(read)
    assert {**settings, "input": params["input"]} == params_to_dict(read)
    if read.input:
        assert "input" not in settings
        assert to_chat(settings, seed=3, items=read.input) == to_chat(params, seed=3)
