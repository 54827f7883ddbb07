"""Requests from items of the contract: the same as from their JSON."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.convert import messages_from_input, messages_from_items, to_chat
from gymmesh_responses import (
    items_from_json,
    new_message,
    params_from_json,
    params_to_dict,
    settings_to_dict,
)
from gymmesh_runtime.errors import MeshError
from tests.unit.model import documents

Json = dict[str, Any]

_ODD: list[Any] = [
    *(None, "", "x", "\ud800", 0, 7, -1, 2**63, 2**70, 1.5, True, False),
    *([], [1], {}, {"a": None}),
]
# Copies, since some of the tests put one into another.
odd: st.SearchStrategy[Any] = st.sampled_from(_ODD).map(copy.deepcopy)


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
