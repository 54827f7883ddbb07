"""The cache of conversations: what it finds, what it forgets, and what it says then."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh_model.serving import ConversationCache, OpenCall
from gymmesh_model.tokens import TokenRecord, pack_ids
from gymmesh_responses import new_message, params_from_json, params_to_dict
from gymmesh_runtime.errors import MeshError


def request(
    call_id: str, *texts: str, parent: str = "", conversation: str = "r1/1", **more: Any
) -> model_pb2.CreateResponseRequest:
    items = [{"type": "message", "role": "user", "content": text} for text in texts]
    asked = model_pb2.CreateResponseRequest(
        params=params_from_json({"input": items}), rollout_id="r1", call_id=call_id
    )
    asked.conversation.id = conversation
    asked.conversation.parent_call_id = parent
    asked.conversation.parent_token = more.get("token", b"")
    return asked


class Cache(ConversationCache):
    """The cache, with a caller's memory of the tokens that it gave."""

    def __init__(self, most: int, max_bytes: int) -> None:
        super().__init__(most, max_bytes)
        self.tokens: dict[tuple[str, str], bytes] = {}


def find(cache: Cache, asked: model_pb2.CreateResponseRequest) -> OpenCall:
    """Finds a call's place; one that names its parent alone comes with that one's last token."""
    ref = asked.conversation
    if ref.parent_call_id and not ref.parent_token:
        ref.parent_token = cache.tokens.get((ref.id, ref.parent_call_id), b"")
    return cache.find(asked, params_to_dict(asked.params))


def answered(call_id: str, *texts: str) -> model_pb2.CreateResponseResponse:
    answer = model_pb2.CreateResponseResponse(call_id=call_id)
    answer.response.output.extend(new_message("assistant", text) for text in texts)
    return answer


def keep(
    cache: Cache, asked: model_pb2.CreateResponseRequest, record: TokenRecord | None = None
) -> bytes:
    """Keeps a call with an answer of its own; returns the token."""
    turn = find(cache, asked)
    answer = answered(asked.call_id, f"answer to {asked.call_id}")
    cache.keep(turn, answer, record)
    cache.tokens[asked.conversation.id, asked.call_id] = answer.conversation_token
    return answer.conversation_token


def unknown(cache: Cache, asked: model_pb2.CreateResponseRequest) -> bool:
    try:
        find(cache, asked)
    except MeshError as error:
        return bool(error.reason == errors_pb2.ERROR_REASON_CONVERSATION_UNKNOWN)
    return False


def texts(items: list[Any] | None) -> list[str]:
    assert items is not None
    return [
        item["content"] if isinstance(item["content"], str) else item["content"][0]["text"]
        for item in items
    ]


def test_a_call_goes_on_with_all_that_came_before() -> None:
    cache = Cache(10, 10**9)
    keep(cache, request("c1", "one"))
    keep(cache, request("c2", "two", parent="c1"))
    turn = find(cache, request("c3", "three", parent="c2"))
    assert texts(turn.items) == ["one", "answer to c1", "two", "answer to c2", "three"]
    # Branches share what they have in common.
    other = find(cache, request("c4", "four", parent="c1"))
    assert texts(other.items) == ["one", "answer to c1", "four"]


@given(parents=st.lists(st.integers(0, 20), max_size=20))
def test_every_branch_has_its_own_and_its_parents_items(parents: list[int]) -> None:
    """What a call keeps for the one after it is never another branch's."""
    cache = Cache(10, 10**9)
    known: list[tuple[str, list[str]]] = [("", [])]
    for number, pick in enumerate(parents):
        parent, before = known[pick % len(known)]
        call = f"c{number}"
        asked = request(call, f"ask {call}", parent=parent)
        turn = find(cache, asked)
        if parent:
            assert texts(turn.items) == [*before, f"ask {call}"]
        keep(cache, asked)
        known.append((call, [*before, f"ask {call}", f"answer to {call}"]))


@given(most=st.integers(1, 4), used=st.lists(st.integers(0, 6), max_size=30))
def test_the_least_used_are_given_up(most: int, used: list[int]) -> None:
    """After any calls, those held are the last `most` that were called."""
    cache = Cache(most, 10**9)
    order: list[int] = []
    for number in used:
        first = number not in order
        asked = request("c1" if first else "c2", "x", conversation=str(number))
        keep(cache, asked)
        order = [one for one in order if one != number] + [number]
        order = order[-most:]
        assert len(cache) == len(order)
    for number in range(7):
        asked = request("c3", "x", parent="c1", conversation=str(number))
        assert unknown(cache, asked) == (number not in order)


def test_bytes_are_bounded_and_given_back() -> None:
    cache = Cache(1000, 100_000)
    for number in range(200):
        keep(cache, request("c1", "x" * 1000, conversation=str(number)))
        assert cache.bytes <= 100_000
    assert 5 < len(cache) < 100
    for number in range(200):
        cache.drop("r1", str(number))
    assert cache.bytes == 0
    # One that is larger than all that may be held is not held.
    keep(cache, request("c1", "x" * 100_000))
    assert (len(cache), cache.bytes) == (0, 0)


def test_the_token_is_compared() -> None:
    """A call is gone on with only by whoever has the token of its very answer."""
    cache = Cache(10, 10**9)
    first = keep(cache, request("c1", "one"))
    again = keep(cache, request("c1", "one"))
    assert first != again
    assert len(again) <= 64
    assert not unknown(cache, request("c2", "two", parent="c1", token=again))
    for other in (first, b"x", again[:-1]):
        assert unknown(cache, request("c2", "two", parent="c1", token=other))


def test_a_call_made_again_replaces_what_was_held() -> None:
    cache = Cache(10, 10**9)
    keep(cache, request("c1", "one"))
    size = cache.bytes
    keep(cache, request("c1", "two"))
    assert cache.bytes == size
    assert texts(find(cache, request("c2", "x", parent="c1")).items)[0] == "two"


def test_tokens_are_a_chain() -> None:
    cache = Cache(10, 10**9)
    first = TokenRecord(prompt=pack_ids([1, 2, 3]), output=[pack_ids([4]), pack_ids([5])])
    first.known = first.closed = True
    keep(cache, request("c1", "one"), first)
    prefix = find(cache, request("c2", "two", parent="c1")).prefix
    assert prefix is not None
    assert prefix.tokens == pack_ids([1, 2, 3, 4, 5])
    assert (prefix.items, prefix.first_items, prefix.first_tokens) == (2, 1, 3)
    assert (prefix.output, prefix.closed) == (pack_ids([4, 5]), True)
    second = TokenRecord(prompt=pack_ids([6]), prefix_tokens=5, output=[pack_ids([7])], known=True)
    keep(cache, request("c2", "two", parent="c1"), second)
    prefix = find(cache, request("c3", "x", parent="c2")).prefix
    assert prefix is not None
    assert prefix.tokens == pack_ids([1, 2, 3, 4, 5, 6, 7])
    assert (prefix.items, prefix.first_items, prefix.first_tokens) == (4, 1, 3)
    # A fork begins a chain of its own.
    forked = TokenRecord(prompt=pack_ids([9, 9]), output=[pack_ids([8])], known=True)
    keep(cache, request("c3", "x", parent="c2"), forked)
    prefix = find(cache, request("c4", "x", parent="c3")).prefix
    assert prefix is not None
    assert prefix.tokens == pack_ids([9, 9, 8])
    assert (prefix.items, prefix.first_items, prefix.first_tokens) == (6, 5, 2)


def test_tokens_sent_with_the_whole() -> None:
    cache = Cache(10, 10**9)
    asked = request("c3", "one", "a1", "two", "tool", "a2", "three")
    sent = asked.conversation.prefix_tokens
    sent.token_ids = pack_ids(list(range(10)))
    sent.item_ends.extend([3, 5, 8, 8, 10])
    prefix = find(cache, asked).prefix
    assert prefix is not None
    assert (prefix.items, prefix.first_items, prefix.first_tokens) == (5, 1, 3)
    assert (prefix.output, prefix.closed, prefix.rewritten) == (pack_ids([8, 9]), None, False)
    del sent.item_ends[-1]
    prefix = find(cache, asked).prefix
    assert prefix is not None
    assert prefix.rewritten


@pytest.mark.parametrize(("most", "size"), [(0, 10**9), (10, 0)])
def test_none_are_kept_where_none_may_be(most: int, size: int) -> None:
    cache = Cache(most, size)
    keep(cache, request("c1", "one"))
    assert unknown(cache, request("c2", "x", parent="c1"))
