"""Minted ids name a call and an output, in letters that every dialect takes."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_agent.gateway.dialects.gemini.signatures import minted_in, signature_of
from gymmesh_agent.gateway.minted import LONGEST_MINTED_ID, Minted, minted, minted_of, tag_of
from gymmesh_responses import item_from_json

calls = st.builds(
    Minted,
    tag=st.text("0123456789abcdef", min_size=8, max_size=8),
    call_id=st.text("abcXYZ0189", min_size=1, max_size=12),
    output=st.integers(0, 99_999),
)


@given(calls, st.sampled_from(["call", "fc", "msg", "rs", "sig", "toolu"]))
def test_there_and_back(named: Minted, prefix: str) -> None:
    text = named.id(prefix)
    assert minted(text) == named
    assert len(text) <= LONGEST_MINTED_ID
    assert re.fullmatch(r"[A-Za-z0-9_-]+", text)


@given(calls)
def test_signatures_survive_both_alphabets(named: Minted) -> None:
    signature = signature_of(named)
    raw = base64.b64decode(signature, validate=True)
    for again in (base64.b64encode(raw), base64.urlsafe_b64encode(raw)):
        assert again.decode() == signature
    assert minted_in(signature) == named.id("sig")


@pytest.mark.parametrize(
    "text", ["", "call_1", "gm", "call_gm0123456-c1-0", "toolu_01A09q90qw90lq"]
)
def test_other_ids_name_nothing(text: str) -> None:
    assert minted(text) is None
    assert minted_in(text) is None


@pytest.mark.parametrize("call_id", ["", "c" * 13, "c-1", "é", "c_1"])
def test_ids_that_could_not_be_read_back_are_not_made(call_id: str) -> None:
    with pytest.raises(ValueError, match="no id can be made"):
        Minted("01234567", call_id, 0).id("call")
    with pytest.raises(ValueError, match="no id can be made"):
        Minted("01234567", "c1", 100_000).id("call")


def test_tags_of_attempts_differ() -> None:
    tags = {tag_of(rollout, attempt) for rollout in ("a", "b") for attempt in (0, 1)}
    assert len(tags) == 4


@pytest.mark.parametrize(
    "item",
    [
        {"type": "function_call", "id": "fc_gm01234567-c1-3", "call_id": "other", "name": "f"},
        {"type": "function_call", "call_id": "toolu_gm01234567-c1-3", "name": "f"},
        {"type": "message", "id": "msg_gm01234567-c1-3", "role": "assistant", "content": "changed"},
        {"type": "reasoning", "encrypted_content": "rs_gm01234567-c1-3", "summary": []},
        {"type": "item_reference", "id": "msg_gm01234567-c1-3"},
        {"type": "custom_tool_call", "call_id": "call_gm01234567-c1-3", "id": None},
    ],
)
def test_items_by_any_of_their_ids(item: dict[str, object]) -> None:
    assert minted_of(item_from_json(item)) == Minted("01234567", "c1", 3)
