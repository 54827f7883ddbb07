"""The verdict: comparing answers, and what counts as having found a document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_resource.environments.web_search.verdict import (
    AnswerMatch,
    extract_answer,
    f1,
    found_documents,
    match_answer,
    normalised,
    recall,
)
from gymmesh_resource.rollout import ToolCall

CASES: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("answers.yaml").read_text(encoding="utf-8")
)
MATCHES: tuple[AnswerMatch, ...] = ("exact", "normalized", "f1")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_case(case: dict[str, Any]) -> None:
    answer = extract_answer(case["message"])
    for how in MATCHES:
        score = match_answer(answer, case["accepted"], how)
        assert score == pytest.approx(case.get(how, 0)), (how, answer)


def test_the_table_is_large() -> None:
    assert len({case["why"] for case in CASES}) == len(CASES) >= 40


@given(st.text(max_size=40), st.text(max_size=40))
def test_scores_are_bounded_and_symmetric(one: str, other: str) -> None:
    first, second = normalised(one), normalised(other)
    assert 0.0 <= f1(first, second) <= 1.0
    assert f1(first, second) == f1(second, first)
    if one.strip():
        assert match_answer(one, [one], "normalized") == match_answer(one, [one], "f1") == 1.0


@pytest.mark.parametrize(
    "piece", ["<answer>", "</answer>", "Answer: ", "1,", "-", "'", "a ", "％", "\n"]
)
def test_a_huge_answer_is_judged(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    assert match_answer(extract_answer(text), ["Torsund"], "f1") == 0.0


def call(name: str, output: Any) -> ToolCall:
    text = output if isinstance(output, str) or output is None else json.dumps(output)
    return ToolCall(name, "c", b"{}", {}, text)


def test_found_documents() -> None:
    calls = [
        call("search", {"results": [{"id": "a", "url": "https://a"}, {"id": "b"}]}),
        call("fetch", {"id": "a", "url": "https://a", "text": "…"}),
        call("fetch", "There is no such document here."),
        call("fetch", None),
        call("fetch", {"id": "x"}),
        call("other", {"id": "y", "text": "…"}),
        call("search", {"results": "z"}),
        call("search", {"results": [None, "q", {"id": 5}]}),
        call("fetch", "[1]"),
    ]
    assert found_documents(calls) == ({"a", "https://a", "b"}, {"a", "https://a"})


@pytest.mark.parametrize(
    ("found", "any_of", "share"),
    [(set(), 0.0, 0.0), ({"a"}, 1.0, 0.5), ({"a", "b", "c"}, 1.0, 1.0), ({"c"}, 0.0, 0.0)],
)
def test_recall(found: set[str], any_of: float, share: float) -> None:
    assert recall(["a", "b", "a"], found, "any") == any_of
    assert recall(["a", "b", "a"], found, "share") == share
