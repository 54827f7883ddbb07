from __future__ import annotations

from typing import Any

import pytest

from gymmesh_client import UserError
from gymmesh_data import stored_rollout
from tests.unit.data.rows import row, text


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([], "must be a JSON object"),
        ({}, "responses_create_params: is missing"),
        ({"responses_create_params": {}, "response": 1}, "response: must be an object"),
        (row(text("5")) | {"reward": "1"}, "reward: must be a number or null"),
        (row(text("5")) | {"reward": True}, "reward: must be a number or null"),
        (row(text("5"), prompt=3), "responses_create_params.input: must be a text or a list"),
        (row(text("5"), prompt=["x"]), "responses_create_params.input[0]: must be an object"),
        (row(text("5"), params={"instructions": 1}), "responses_create_params.instructions"),
        (row(text("5"), params={"tools": {}}) | {}, ""),
    ],
)
def test_what_is_no_row_is_named(wrong: Any, words: str) -> None:
    if not words:
        assert stored_rollout(wrong, "x").tools == []
        return
    with pytest.raises(UserError) as raised:
        stored_rollout(wrong, "x.jsonl:7")
    assert str(raised.value).startswith("x.jsonl:7: ")
    assert words in str(raised.value)


def test_repeats_without_an_id_belong_together() -> None:
    first, second = row(text("5")), row(text("6"))
    other = row(text("5"), prompt="What is 2 + 4?")
    for one in (first, second, other):
        del one["task_id"]
    second["responses_create_params"] = {"tools": None} | second["responses_create_params"]
    assert stored_rollout(first, "x").task_id == stored_rollout(second, "x").task_id
    assert stored_rollout(first, "x").task_id != stored_rollout(other, "x").task_id


def test_no_reward_is_not_zero() -> None:
    assert stored_rollout(row(text("5"), reward=None), "x").reward is None
    assert stored_rollout(row(text("5"), reward=0), "x").reward == 0.0
