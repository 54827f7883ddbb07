"""Moves are found where they stand alone, and never picked out of a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_resource.environments.game.answer import LONGEST, find_move

CASES: list[dict[str, Any]] = yaml.load(
    Path(__file__).with_name("answers.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_case(case: dict[str, Any]) -> None:
    assert find_move(case["text"]) == case["move"]


def test_the_table_is_large() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize(
    "text",
    ["<move>" * 200_000, "\\boxed{" * 200_000, "9" * 1_000_000, "</think>" * 100_000, "\ud800"],
    ids=["tags", "boxes", "digits", "thoughts", "surrogate"],
)
def test_huge_and_odd_text_is_read_in_time(text: str) -> None:
    found = find_move(text)

    assert found is None or len(found) <= LONGEST


@given(st.text(), st.text())
def test_a_tagged_move_counts_whatever_is_around_it(before: str, after: str) -> None:
    text = f"{before}<move>2 3</move>{after}"
    if "</think>" in after or "move" in after.casefold():
        return
    assert find_move(text) == "2 3"
