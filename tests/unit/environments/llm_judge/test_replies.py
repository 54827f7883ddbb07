"""Reading replies and adding up criteria: pure, in tables and laws."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_resource.environments.llm_judge.fences import fence
from gymmesh_resource.environments.llm_judge.texts import extract_last, grade
from gymmesh_resource.environments.llm_judge.verdicts import (
    Criterion,
    aggregate,
    read_criterion,
    read_equivalence,
    read_score,
    without_thoughts,
)

CASES: list[dict[str, Any]] = yaml.load(
    Path(__file__).with_name("replies.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)
EQUAL, NOT_EQUAL = "[[A=B]]", "[[A!=B]]"
LABELS = [re.compile(re.escape(label)) for label in (EQUAL, NOT_EQUAL)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['mode']}: {case['why']}")
def test_reply(case: dict[str, Any]) -> None:
    readers: dict[str, Callable[[str], Any]] = {
        "equivalence": lambda reply: read_equivalence(reply, EQUAL, NOT_EQUAL),
        "criterion": read_criterion,
        "score": lambda reply: read_score(reply, 1, 10),
    }
    verdict = readers[case["mode"]](case["reply"])
    assert verdict == case["verdict"]
    assert (verdict is None) == (case["verdict"] is None)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case["mode"] != "score"],
    ids=lambda case: f"{case['mode']}: {case['why']}",
)
def test_reply_as_nemo_gym_reads_it(case: dict[str, Any]) -> None:
    readers: dict[str, Callable[[str], Any]] = {
        "equivalence": lambda reply: read_equivalence(reply, EQUAL, NOT_EQUAL, as_nemo=True),
        "criterion": lambda reply: read_criterion(reply, as_nemo=True),
    }
    assert readers[case["mode"]](case["reply"]) is case.get("nemo", case["verdict"])


def test_the_table_is_large() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize("opening", ["<think>", "<thinking>", "</think>", "[[A=B]", "[[1"])
def test_a_huge_reply_is_read_in_time(opening: str) -> None:
    reply = opening * 100_000
    assert len(without_thoughts(reply)) <= len(reply)
    assert read_equivalence(reply, EQUAL, NOT_EQUAL) is None
    assert read_score(reply, 1, 10) is None


@pytest.mark.parametrize(
    ("how", "reward"),
    [("weighted", 0.75), ("mean", 0.5), ("all", 0.0), ("min", 0.0), ("any", 1.0), ("max", 1.0)],
)
def test_aggregation(how: Any, reward: float) -> None:
    criteria = [Criterion("a", weight=3.0), Criterion("b", weight=1.0)]
    assert aggregate(criteria, [True, False], how) == reward


def test_negative_weights_count_against_and_stay_within_bounds() -> None:
    criteria = [Criterion("a", weight=4.0), Criterion("b", weight=-2.0)]
    assert aggregate(criteria, [True, True], "weighted") == 0.5
    assert aggregate(criteria, [True, False], "weighted") == 1.0
    assert aggregate(criteria, [False, True], "weighted") == 0.0


INSULT = [Criterion("insults", weight=-2.0), Criterion("right", weight=1.0)]


@pytest.mark.parametrize(
    ("how", "met", "reward", "nemo"),
    [
        ("all", [True, True], 0.0, 1.0),
        ("all", [False, True], 1.0, 0.0),
        ("all", [False, False], 0.0, 0.0),
        ("min", [True, True], 0.0, 1.0),
        ("min", [False, True], 1.0, 0.0),
        ("any", [True, False], 0.0, 1.0),
        ("any", [True, True], 1.0, 1.0),
        ("max", [True, False], 0.0, 1.0),
        ("max", [False, True], 1.0, 1.0),
        ("mean", [True, True], 0.5, 1.0),
        ("mean", [False, True], 1.0, 0.5),
        ("mean", [True, False], 0.0, 0.5),
        ("weighted", [True, True], 0.0, 0.0),
        ("weighted", [False, True], 1.0, 1.0),
        ("weighted", [True, False], 0.0, 0.0),
    ],
)
def test_a_criterion_of_negative_weight_is_fulfilled_when_it_does_not_apply(
    how: Any, met: list[bool], reward: float, nemo: float
) -> None:
    assert aggregate(INSULT, met, how) == reward
    assert aggregate(INSULT, met, how, as_nemo=True) == nemo


@pytest.mark.parametrize("how", ["all", "min", "any", "max", "mean", "weighted"])
def test_a_criterion_without_weight_does_not_count(how: Any) -> None:
    criteria = [Criterion("style", weight=0.0), Criterion("right")]
    assert aggregate(criteria, [True, False], how) == 0.0
    assert aggregate(criteria, [False, True], how) == 1.0


pieces = st.dictionaries(
    st.sampled_from(["question", "answer"]), st.text(st.sampled_from("[]A=B!<>a \n"), max_size=60)
)


def _shown(block: str) -> str:
    """What stands between a block's markers."""
    return block.split("\n", 1)[1].rsplit("\n", 1)[0]


@given(pieces)
def test_no_piece_holds_a_label_or_ends_itself(material: dict[str, str]) -> None:
    fenced = fence(material, LABELS)
    for block in fenced.blocks.values():
        assert EQUAL not in block
        assert NOT_EQUAL not in block
        assert block.count(fenced.code) == 2
    assert fence(material, LABELS).blocks == fenced.blocks
    for name, text in material.items():
        assert (_shown(fenced.blocks[name]) == text) == (not any(L.search(text) for L in LABELS))


@given(st.text(max_size=50))
def test_a_piece_without_labels_is_shown_as_it_is(text: str) -> None:
    shown = text.encode("utf-8", "replace").decode()
    if not any(label.search(shown) for label in LABELS):
        assert _shown(fence({"answer": text}, LABELS).blocks["answer"]) == shown


def test_a_code_that_occurs_is_not_taken() -> None:
    first = fence({"answer": "x"}, LABELS).code
    # To be of use to an answer, its code would have to be in it.
    assert fence({"answer": f"x {first}"}, LABELS).code != first


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"Answer: (\w+)", "Answer: a\nAnswer: b", "b"),
        (r"Answer: \w+", "Answer: a", "Answer: a"),
        (r"(x)?(\d+)", "7", "7"),
        (r"^(\w+)$", "one\ntwo", "two"),
        (r"<a>(.*?)</a>", "<a>1\n2</a>", "1\n2"),
        (r"nothing", "text", None),
        (r"( )?(\d)", " 7", "7"),
    ],
)
def test_extraction(pattern: str, text: str, found: str | None) -> None:
    assert extract_last(pattern, text) == found


@pytest.mark.parametrize(
    ("rule", "answer", "expected", "score"),
    [
        ("exact", "  The  Answer\n", "the answer", 1.0),
        ("exact", "the answer.", "the answer", 0.0),
        ("exact", "", "", 1.0),
        ("exact", "ÄPFEL", "äpfel", 1.0),
        ("seq_match", "abcd", "abcd", 1.0),
        ("seq_match", "abcd", "bcde", 0.75),
        ("seq_match", "", "abc", 0.0),
        ("weighted_seq_match", "abcd", "abcd", 1.0),
        ("weighted_seq_match", "abcd", "bcde", 0.75),
        ("weighted_seq_match", "xyz", "abc", 0.0),
    ],
)
def test_rules(rule: Any, answer: str, expected: str, score: float) -> None:
    assert grade(rule, answer, expected) == pytest.approx(score)
