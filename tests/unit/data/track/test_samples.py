"""Which rollouts go into a tracker's table, and what of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_data.track.samples import COLUMNS, Reservoir, sample_of
from tests.unit.data.rows import call, result, row, text


def sample(one: dict[str, Any]) -> dict[str, Any]:
    found = sample_of(json.dumps(one).encode())
    assert found is not None
    return dict(zip(COLUMNS, found, strict=True))


@given(st.integers(0, 20), st.integers(0, 200))
def test_a_table_is_bounded_and_holds_what_passed(most: int, passing: int) -> None:
    reservoir: Reservoir[int] = Reservoir(most)
    for one in range(passing):
        if (place := reservoir.place()) is not None:
            reservoir.put(place, one)
    assert len(reservoir.kept) == min(most, passing)
    assert len(set(reservoir.kept)) == len(reservoir.kept)
    assert reservoir.passed == passing


def test_each_that_passes_has_the_same_chance() -> None:
    times = [0] * 20
    for seed in range(4000):
        reservoir: Reservoir[int] = Reservoir(5, seed)
        for one in range(20):
            if (place := reservoir.place()) is not None:
                reservoir.put(place, one)
        for one in reservoir.kept:
            times[one] += 1
    # 1000 each are expected; 5 standard deviations of a binomial are 137.
    assert max(abs(count - 1000) for count in times) < 137


def test_a_completed_rollout() -> None:
    one = row(call("add", "{}", "c"), result("c", "3"), text("It is 3."), prompt="What is 1 + 2?")
    one["response"]["usage"] = {"output_tokens": 7}
    found = sample(one)
    assert found["prompt"] == "What is 1 + 2?"
    assert found["answer"] == "It is 3."
    assert (found["reward"], found["outcome"]) == (1.0, "MODEL_FINISHED")
    assert (found["task"], found["repeat"], found["output tokens"]) == ("sum-1", 0, 7)


def test_a_failed_rollout_has_no_reward() -> None:
    status = {"reason": "TOOL_TIMEOUT", "message": "it took too long"}
    one = row(text("Well"), failure={"boundary": "TOOL", "status": status})
    found = sample(one)
    assert (found["reward"], found["outcome"]) == (None, "failed: TOOL TOOL_TIMEOUT")


def test_the_answer_of_a_rollout_that_ends_with_tool_calls() -> None:
    found = sample(row(text("First"), result("c", "?"), call("a", "{}", "d"), call("b", "1", "e")))
    assert found["answer"] == "a({})\nb(1)"


@pytest.mark.parametrize("said", [None, 3, [], [3, {"text": 4}], {}, "\x1b[31m\ud800\x00"])
def test_what_a_row_says_is_never_trusted(said: Any) -> None:
    found = sample(row({"type": "message", "role": "assistant", "content": said}))
    assert "\x1b" not in found["answer"]
    found["answer"].encode()


def test_secrets_stay_out_and_long_texts_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "open-sesame-1234")
    found = sample(row(text("x" * 100_000), prompt="The key is open-sesame-1234."))
    assert found["prompt"] == "The key is ***."
    assert len(found["answer"]) == 4000


@pytest.mark.parametrize("line", [b"", b"[]", b"{}", b'{"response": 1}'])
def test_a_line_that_is_no_row_is_no_sample(line: bytes) -> None:
    assert sample_of(line) is None
