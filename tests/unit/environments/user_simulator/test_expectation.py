"""What a conversation comes to is found in the state and in what the model said, alone."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_resource import TaskInvalid, ToolError
from gymmesh_resource.environments.user_simulator.domains import RowTools, ShopTools
from gymmesh_resource.environments.user_simulator.expectation import read_expectation
from gymmesh_resource.environments.user_simulator.states import differences, patched, same

CASES: list[dict[str, Any]] = yaml.load(
    Path(__file__).with_name("verdicts.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)
SHOP: dict[str, Any] = {
    "customers": {"c1": {"name": "Ada", "email": "a@b.c"}},
    "orders": {
        "W1": {
            "customer": "c1",
            "status": "delivered",
            "items": {
                "lamp": {"name": "Lamp", "price_cents": 3000},
                "bulb": {"name": "Bulb", "price_cents": 250, "quantity": 3},
            },
        },
        "W2": {"customer": "c1", "status": "pending", "items": {}, "address": "9 Old Road"},
        "W3": {"customer": "c1", "status": "pending", "items": {}},
    },
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=2), part),
    max_leaves=8,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_case(case: dict[str, Any]) -> None:
    shop = ShopTools(SHOP)
    expectation = read_expectation(case["expected"], shop)
    state = shop.start()
    for name, arguments in case.get("do", []):
        state, _ = shop.call(state, name, arguments)
    found = expectation.findings(state, case.get("said", []))

    assert found.differences == case.get("differences", [])
    assert found.missing == case.get("missing", [])
    assert found.leaked == case.get("leaked", [])


def test_the_table_is_large() -> None:
    assert len(CASES) >= 40
    assert len({case["why"] for case in CASES}) == len(CASES)


def test_the_row_is_not_changed() -> None:
    before = copy.deepcopy(SHOP)
    shop = ShopTools(SHOP)
    shop.call(shop.start(), "cancel_order", {"order_id": "W2"})
    assert before == SHOP
    assert shop.start()["orders"]["W2"]["status"] == "pending"


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("cancel_order", {"order_id": "W1"}, "delivered. Only pending"),
        ("cancel_order", {"order_id": "W9"}, "No order"),
        ("refund_item", {"order_id": "W2", "item_id": "lamp"}, "pending. Only delivered"),
        ("refund_item", {"order_id": "W1", "item_id": "rug"}, "lamp, bulb"),
        ("refund_item", {"order_id": "W1", "item_id": "lamp", "quantity": 2}, "Only 1"),
        ("refund_item", {"order_id": "W1", "item_id": "lamp", "quantity": 0}, "quantity"),
        ("refund_item", {"order_id": "W1", "item_id": "lamp", "quantity": -1}, "quantity"),
        ("refund_item", {"order_id": "W1"}, "item_id"),
        ("refund_item", {"order_id": "W1", "item_id": "lamp", "price": 1}, "price"),
        ("change_address", {"order_id": "W2", "address": " "}, "empty"),
        ("change_address", {"order_id": "W1", "address": "x"}, "delivered"),
        ("find_customer", {"email": "nobody@b.c"}, "No customer"),
        ("list_orders", {"customer_id": "c9"}, "No customer"),
        ("hand_over", {"customer_id": ""}, "No customer"),
        ("_order", {"order_id": "W1"}, "no tool"),
        ("__init__", {"state": {}}, "no tool"),
    ],
)
def test_the_shop_refuses(name: str, arguments: dict[str, Any], told: str) -> None:
    shop = ShopTools(SHOP)
    state = shop.start()

    with pytest.raises(ToolError, match=told):
        shop.call(state, name, arguments)

    assert state == shop.start()


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"order": {}}, "order"),
        ({"orders": {"W1": {}}}, "orders"),
        ({"orders": {"W1": {"customer": "c1", "status": "pending", "items": {}}}}, "W1"),
        ({"customers": {"c1": {"name": "A"}}}, "email"),
        ({"customers": []}, "customers"),
    ],
)
def test_malformed_shops(state: Any, told: str) -> None:
    with pytest.raises(TaskInvalid, match=told) as caught:
        ShopTools(state)
    assert caught.value.field == "state"


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({}, "expected"),
        ([], "expected"),
        (None, "expected"),
        ({"says": ["x"]}, "expected.says"),
        ({"say": "x"}, "expected.say"),
        ({"say": [""]}, "expected.say[0]"),
        ({"say": ["x", []]}, "expected.say[1]"),
        ({"say": ["**"]}, "expected.say[0]"),
        ({"dont_say": [3]}, "expected.dont_say[0]"),
        ({"dont_say": [["x", " "]]}, "expected.dont_say[0]"),
        ({"state": []}, "expected.state"),
        ({"actions": {}}, "expected.actions"),
        ({"actions": ["cancel"]}, "expected.actions[0]"),
        ({"actions": [{"name": "cancel_order", "arguments": []}]}, "expected.actions[0]"),
        ({"actions": [{"arguments": {}}]}, "expected.actions[0]"),
        ({"actions": [{"name": "cancel_order", "args": {}}]}, "expected.actions[0]"),
        ({"actions": [{"name": "refuse", "arguments": {}}]}, "expected.actions[0]"),
        (
            {"actions": [{"name": "cancel_order", "arguments": {"order_id": "W1"}}]},
            "expected.actions[0]",
        ),
        ({"criteria": 1}, "expected.criteria"),
    ],
)
def test_malformed_expectations(value: Any, field: str) -> None:
    with pytest.raises(TaskInvalid) as caught:
        read_expectation(value, ShopTools(SHOP))
    assert caught.value.field == field


ANSWERS = {
    "book": [
        {"if": {"booked": True}, "error": "There is a booking already."},
        {"when": {"day": "Friday"}, "output": {"ok": True}, "changes": {"booked": True}},
    ],
    "ping": [{"output": None}],
}


def test_tools_of_the_row() -> None:
    tools = RowTools(ANSWERS, {"booked": False})
    state = tools.start()

    with pytest.raises(ToolError, match="nothing"):
        tools.call(state, "book", {"day": "Monday"})
    state, output = tools.call(state, "book", {"day": "friday ", "people": 2})
    assert (state, output) == ({"booked": True}, {"ok": True})
    with pytest.raises(ToolError, match="already"):
        tools.call(state, "book", {"day": "Friday"})
    with pytest.raises(ToolError, match="nothing"):
        tools.call(state, "unheard_of", {})
    assert tools.call(state, "ping", {"any": 1}) == (state, None)
    assert tools.start() == {"booked": False}


@pytest.mark.parametrize(
    ("answers", "state", "field"),
    [
        ([], {}, "tool_answers"),
        ({"book": {}}, {}, "tool_answers.book"),
        ({"book": ["x"]}, {}, "tool_answers.book"),
        ({"book": [{"wen": {}}]}, {}, "tool_answers.book[0]"),
        ({"book": [{}, {"when": []}]}, {}, "tool_answers.book[1].when"),
        ({"book": [{"if": 1}]}, {}, "tool_answers.book[0].if"),
        ({"book": [{"changes": "x"}]}, {}, "tool_answers.book[0].changes"),
        ({"book": [{"error": 1}]}, {}, "tool_answers.book[0].error"),
        ({}, [], "state"),
    ],
)
def test_malformed_tools_of_the_row(answers: Any, state: Any, field: str) -> None:
    with pytest.raises(TaskInvalid) as caught:
        RowTools(answers, state)
    assert caught.value.field == field


@given(JSON)
def test_a_state_is_the_same_as_itself(state: Any) -> None:
    assert same(state, copy.deepcopy(state))
    assert differences(state, copy.deepcopy(state)) == []


@given(JSON, JSON)
def test_there_are_differences_exactly_when_not_the_same(one: Any, other: Any) -> None:
    assert bool(differences(one, other)) == (not same(one, other))


@given(JSON, JSON)
def test_a_patch_holds_afterwards_and_changes_nothing_else(state: Any, patch: Any) -> None:
    before = copy.deepcopy(state)
    after = patched(state, patch)
    assert state == before
    assert patched(after, patch) == after


def test_a_merge_patch() -> None:
    state = {"a": {"b": 1, "c": [1, 2]}, "d": 1}
    patch = {"a": {"b": None, "c": [3]}, "e": {"f": {"g": None}}}
    assert patched(state, patch) == {"a": {"c": [3]}, "d": 1, "e": {"f": {}}}
