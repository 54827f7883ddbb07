"""Facts are found as they are written, and not in longer words and numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_resource.environments.user_simulator.facts import normalised, spoken, states

CASES: list[dict[str, Any]] = yaml.load(
    Path(__file__).with_name("facts.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_case(case: dict[str, Any]) -> None:
    message = normalised(spoken(case["message"]))

    assert states(message, [normalised(case["fact"])]) == case["states"]


def test_the_table_is_large() -> None:
    assert len(CASES) >= 40


@given(st.text(), st.text())
def test_a_fact_between_spaces_is_found(before: str, after: str) -> None:
    assert states(normalised(f"{before} W1001 {after}"), ["w1001"])


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_number_is_not_another(one: int, other: int) -> None:
    assert states(normalised(f"it is {one}, really"), [str(other)]) == (one == other)


def test_huge_messages_are_read_in_time() -> None:
    assert not states(normalised("1" * 1_000_000), ["11"])
    assert not states(normalised("ab" * 300_000), ["ab" * 20])
