"""Rewards of short answers, the rows that are refused, and recorded rewards."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_resource.environments.string_match import StringMatchEnvironment, extraction
from gymmesh_resource.environments.string_match.extraction import MODES
from gymmesh_resource.environments.string_match.nemo import extract, grade
from gymmesh_resource.environments.string_match.verdict import sameness
from gymmesh_responses import new_message
from gymmesh_runtime.errors import MeshError
from tests.unit.resource.served import served, task

CASES: list[dict[str, Any]] = yaml.load(
    Path(__file__).with_name("verdicts.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_case(case: dict[str, Any]) -> None:
    answer = extract(case["text"].strip(), case.get("mode", "final_answer"))
    exact = case.get("exact", False)

    reward = 0.0 if answer is None else grade(case["expected"], answer, case_sensitive=exact)

    assert reward == case["reward"], answer


def test_the_table_is_large() -> None:
    assert len(CASES) >= 40
    assert {case["reward"] for case in CASES} == {0, 0.98, 1}
    assert {case.get("mode", "final_answer") for case in CASES} == set(MODES)


@given(st.text(min_size=1))
def test_an_answer_is_worth_1_to_itself(text: str) -> None:
    assert sameness(text, text)
    assert sameness(text, text, case_sensitive=True)
    assert sameness(unicodedata.normalize("NFD", text), text)
    assert grade(text, text) == 1.0
    assert grade(unicodedata.normalize("NFD", text), text) == 1.0


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_numbers_are_the_same_only_where_they_are_equal(right: int, answer: int) -> None:
    assert bool(sameness(str(right), str(answer))) == (right == answer)
    assert bool(sameness(f"{right:,} km", f"{answer}.0 km")) == (right == answer)
    near = sameness(str(right), str(answer), tolerance=0.01)
    assert bool(near) == (abs(right - answer) * 100 <= abs(right))


@given(st.text(), st.text())
def test_sameness_has_no_direction(left: str, right: str) -> None:
    assert sameness(left, right) == sameness(right, left)


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_whole_numbers_are_graded_by_their_distance(right: int, answer: int) -> None:
    reward = grade(str(right), str(answer))

    if right == answer:
        assert reward == 1.0
    elif abs(right - answer) > 0.02 * abs(right):
        assert reward == 0.0
    else:
        assert reward in (0.0, 0.98)


@given(st.text(), st.text())
def test_a_reward_is_one_of_three(expected: str, answer: str) -> None:
    assert grade(expected, answer) in (0.0, 0.98, 1.0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 50_000,
        "\\boxed{" + "\\text{" * 30_000 + "}" * 30_001,
        "9" * 300_000,
        "Answer: " + "9," * 150_000,
        "Answer: " * 50_000,
        "Answer:" + " " * 300_000,
        "Answer: " + "\\text{" * 50_000,
        ". " * 150_000,
        "\ud800\x00",
    ],
    ids=["boxes", "commands", "digits", "groups", "answers", "spaces", "unclosed", "dots", "odd"],
)
def test_long_and_odd_text_is_judged_in_the_end(mode: Any, text: str) -> None:
    # What is quadratic would outlast the test's time limit.
    for find in (extract, extraction.extract):
        answer = find(text, mode)

        assert answer is None or grade("15", answer) == 0.0
        assert answer is None or sameness("15", answer) is None
        assert sameness(text, text, case_sensitive=True)


def _row(**changes: Any) -> dict[str, Any]:
    return {"expected_answer": "80", "extraction_mode": "final_answer"} | changes


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({}, "expected_answer"),
        ({"expected_answer": "80"}, "extraction_mode"),
        (_row(extraction_mode=None), "extraction_mode"),
        (_row(expected_answer=""), "expected_answer"),
        (_row(expected_answer=80), "expected_answer"),
        (_row(extraction_mode="regex"), "extraction_mode"),
        (_row(extraction_mode=["boxed"]), "extraction_mode"),
        (_row(case_sensitive="yes"), "case_sensitive"),
    ],
)
async def test_a_broken_row_is_refused_by_its_key(row: dict[str, Any], field: str) -> None:
    async with served(StringMatchEnvironment()) as environment:
        with pytest.raises(MeshError) as caught:
            await environment.create(task(**row))

    assert caught.value.reason_name == "TASK_INVALID"
    assert field in caught.value.message


async def test_a_reference_is_chosen_by_configuration_and_row() -> None:
    near = [new_message("assistant", "answer: 80.1")]
    async with served(StringMatchEnvironment()) as environment:
        right = await environment.verify(of=task(**_row()), transcript=near)
        nemo = await environment.verify(of=task(**_row(compat="nemo")), transcript=near)
    async with served(StringMatchEnvironment(), compat="nemo") as environment:
        configured = await environment.verify(of=task(**_row()), transcript=near)

    assert (right.reward, nemo.reward, configured.reward) == (0.0, 0.98, 0.98)
    assert right.explanation == "expected '80', got '80.1'"
    assert (nemo.compat, configured.compat) == ("nemo", "nemo")


async def test_a_row_needs_the_answer_and_its_place() -> None:
    async with served(StringMatchEnvironment()) as environment:
        row = task(**_row(case_sensitive=None))
        right = await environment.verify(
            of=row, transcript=[new_message("assistant", "answer: 80")]
        )
        nothing = await environment.verify(of=row, transcript=[])
        huge = [new_message("assistant", "x" * 100_000 + "\nanswer: 80")]
        long = await environment.verify(of=row, transcript=huge)

    assert (right.reward, nothing.reward, long.reward) == (1.0, 0.0, 1.0)
    assert json.loads(nothing.evidence_json)["extracted_answer"] is None


@pytest.mark.golden
async def test_agrees_with_recorded_rewards(golden_dir: Path) -> None:
    rows = [
        json.loads(line)
        for line in (golden_dir / "string_match.example.jsonl").read_text().splitlines()
    ]
    recorded = [
        json.loads(line)
        for line in (golden_dir / "string_match.example_rollouts.jsonl").read_text().splitlines()
    ]
    assert len(recorded) == 5

    async with served(StringMatchEnvironment(), compat="nemo") as environment:
        for rollout in recorded:
            row = dict(rows[rollout["_ng_task_index"]])
            del row["responses_create_params"]
            answer = rollout["response"]["output"][-1]["content"][0]["text"]
            verification = await environment.verify(
                of=task(**row), transcript=[new_message("assistant", answer)]
            )
            evidence = json.loads(verification.evidence_json)
            assert verification.reward == rollout["reward"]
            assert evidence["extracted_answer"] == rollout["extracted_answer"]
