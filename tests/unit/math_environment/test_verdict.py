"""The verdict's judgements: a table of hard cases, and agreement with recorded ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymmesh_resource.environments.math import library
from gymmesh_resource.environments.math.score import ExpectedAnswerError
from gymmesh_resource.environments.math.verdict import judge, warm_up

CASES: list[dict[str, Any]] = yaml.load(
    Path(__file__).with_name("verdicts.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)


@pytest.fixture(autouse=True, scope="module")
def _warm() -> None:
    warm_up()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_case(case: dict[str, Any]) -> None:
    verdict = judge(case["expected"], case["response"])

    assert verdict.reward == case["reward"], verdict
    if "extracted" in case:
        assert verdict.extracted == case["extracted"]


def test_the_table_is_large() -> None:
    assert len(CASES) >= 40
    assert {case["reward"] for case in CASES} == {0, 1}


@pytest.mark.parametrize("expected", ["", "  ", "$$", "\\(\\)"])
def test_an_empty_expected_answer_is_the_tasks_fault(expected: str) -> None:
    for verdict in (judge, library.judge):
        with pytest.raises(ExpectedAnswerError, match="empty"):
            verdict(expected, "\\boxed{5}")


@pytest.mark.parametrize(
    "text",
    [
        "\ud800 \\boxed{5}",
        "\\boxed{" + "9" * 5_000 + "}",
        "\\boxed{" * 500,
        "\\boxed{" + "{" * 100 + "}" * 100 + "}",
        "$" * 5_000,
        "answer" * 1_000,
    ],
    ids=["surrogate", "digits", "unclosed", "braces", "dollars", "anchors"],
)
def test_odd_text_is_judged_too(text: str) -> None:
    assert judge("5", text).reward == float(text.startswith("\ud800"))


def test_evidence_is_bounded() -> None:
    verdict = judge("5", "\\boxed{" + "x + " * 1_000 + "1}")

    assert verdict.reward == 0.0
    assert len(verdict.extracted or "") <= 1_000


@pytest.mark.golden
@pytest.mark.timeout(900)
def test_agrees_with_recorded_judgements(golden_dir: Path) -> None:
    path = golden_dir / "math_with_judge.example_rollouts.jsonl"
    rollouts = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert rollouts

    for rollout in rollouts:
        verdict = library.judge(rollout["expected_answer"], _text(rollout["response"]))
        assert verdict.reward == rollout["library_reward"]
        assert verdict.extracted == rollout["extracted_answer"]


def _text(response: dict[str, Any]) -> str:
    messages = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part["text"] for message in messages for part in message["content"])
