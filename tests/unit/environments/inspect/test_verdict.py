"""Scores of Inspect as verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh_resource import Skipped, Verdict
from gymmesh_resource.environments.inspect.verdict import NoVerdict, verdict_of


def score(name: str, numbers: dict[str, float], **more: Any) -> dict[str, Any]:
    known = {"name": name, "numbers": numbers, "unscored": False, "value": "v", "answer": None}
    return {**known, "explanation": None, **more}


def answer(*scores: dict[str, Any], limit: Any = None) -> dict[str, Any]:
    return {"scores": list(scores), "limit": limit}


TWO = (score("near.by", {"a": 0.5, "b": 0.25}), score("match", {"": 1.0}, explanation="as it is"))


@pytest.mark.parametrize(
    ("wanted", "reward"), [("match", 1.0), ("near.by.a", 0.5), ("near.by.b", 0.25)]
)
def test_the_score_is_chosen_by_name(wanted: str, reward: float) -> None:
    verdict = verdict_of(answer(*TWO), wanted)
    assert isinstance(verdict, Verdict)
    assert verdict.reward == reward
    assert verdict.components == {"near.by.a": 0.5, "near.by.b": 0.25, "match": 1.0}


def test_a_limit_is_evidence_and_the_explanation_is_the_scorers() -> None:
    verdict = verdict_of(answer(TWO[1], limit={"type": "message"}), None)
    assert isinstance(verdict, Verdict)
    assert verdict.evidence["limit"] == "message"
    assert verdict.explanation == "as it is"


@pytest.mark.parametrize(
    ("given", "wanted", "problem"),
    [
        ((), None, "returned no score"),
        (TWO, None, "set the option 'score' to one of near.by.a, near.by.b"),
        (TWO, "other", "the option 'score' is other"),
        (TWO, "near.by.c", "can't convert"),
        ((score("word", {}, value="maybe"),), None, "returned 'maybe'"),
    ],
)
def test_what_is_no_number_is_no_verdict(given: Any, wanted: str | None, problem: str) -> None:
    with pytest.raises(NoVerdict, match=problem):
        verdict_of(answer(*given), wanted)


def test_an_unscored_sample_is_skipped_with_its_reason() -> None:
    unscored = score("match", {}, unscored=True, value=None, explanation="no answer to judge")
    skipped = verdict_of(answer(unscored), None)
    assert isinstance(skipped, Skipped)
    assert skipped.reason == "no answer to judge"
