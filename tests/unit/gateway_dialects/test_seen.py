"""What a program sent before is read once, and changes nothing of what is read."""

from __future__ import annotations

import json
from unittest import mock

import pytest

from gymmesh_agent.gateway.dialects import DIALECTS, SeenRequests, route
from gymmesh_agent.gateway.request import GatewayRequest, Json, Refusal
from gymmesh_responses import items_from_json
from tests.unit.gateway_dialects.requests import PATHS

TOOL = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}


def chat(*texts: str, **more: object) -> Json:
    """A conversation of users' messages."""
    messages = [{"role": "user", "content": text} for text in texts]
    return {"model": "m", "messages": messages, "tools": [TOOL], **more}


def read(body: Json, before: SeenRequests) -> GatewayRequest:
    request = answered(body, before)
    assert isinstance(request, GatewayRequest), request
    return request


def answered(body: Json, before: SeenRequests) -> GatewayRequest | Refusal:
    found = route("POST", PATHS["chat"], {}, {})
    assert not isinstance(found, Refusal)
    return DIALECTS["chat"].read(found, {}, json.dumps(body).encode(), before)


def test_each_item_of_a_growing_conversation_is_read_once() -> None:
    before = SeenRequests()
    texts: list[str] = []
    made = 0

    def counted(documents: list[Json]) -> object:
        nonlocal made
        made += len(documents)
        return items_from_json(documents)

    with mock.patch(f"{SeenRequests.__module__}.items_from_json", counted):
        for number in range(200):
            texts.append(f"message {number}")
            request = read(chat(*texts), before)
            assert [item.message.text for item in request.items] == texts
    assert made == 200


def test_what_was_read_before_is_the_same_object() -> None:
    before = SeenRequests()
    first = read(chat("a", "b"), before)
    second = read(chat("a", "x", "b"), before)
    assert second.items[0] is first.items[0]
    assert second.items[2] is first.items[1]
    assert second.tools is first.tools


def test_it_changes_nothing_of_a_request() -> None:
    before = SeenRequests()
    bodies = [chat("a"), chat("a", "b", temperature=1), chat("a", "b", temperature=1.0), chat("b")]
    for body in [*bodies, *bodies]:
        assert read(body, before) == read(body, SeenRequests())
    assert len({read(body, before).digest for body in bodies}) == len(bodies)


def test_what_is_equal_in_python_and_not_in_json_is_something_else() -> None:
    before = SeenRequests()
    tools = [{"type": "custom", "custom": {"name": "t", "x": value}} for value in (1, True, 1.0)]
    found = [read({**chat("a"), "tools": [tool]}, before) for tool in tools]
    assert [json.dumps(one.tools[0]["x"]) for one in found] == ["1", "true", "1.0"]


def test_an_error_names_the_place_among_all_items() -> None:
    before = SeenRequests()
    read(chat("a", "b"), before)
    body = chat("a", "b", "c")
    deep: object = "x"
    for _ in range(245):
        deep = [deep]
    body["messages"][2]["content"] = [{"type": "other", "deep": deep}]
    alone, after = answered(body, SeenRequests()), answered(body, before)
    assert isinstance(after, Refusal)
    assert after == alone


def test_tools_that_nest_too_deeply_are_refused_each_time() -> None:
    before = SeenRequests()
    deep: object = {}
    for _ in range(120):
        deep = {"type": "object", "properties": {"x": deep}}
    body = {
        **chat("a"),
        "tools": [{"type": "function", "function": {"name": "f", "parameters": deep}}],
    }
    for _ in range(2):
        assert isinstance(answered(body, before), Refusal)


@pytest.mark.parametrize("length", [10, 3_000_000])
def test_it_holds_a_few_conversations_at_most(length: int) -> None:
    before = SeenRequests()
    for number in range(12):
        read(chat(f"{number}" * length), before)
    held = {id(one): one for kept in (before._young, before._old) for one in kept.values()}
    sizes = sum(one.item.ByteSize() for one in held.values())
    assert sizes <= 6 * 2 * max(length, 1 << 20)
