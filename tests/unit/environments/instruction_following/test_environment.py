"""Rows as they come, rows that are refused, and recorded rewards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.environments.instruction_following import (
    InstructionFollowingEnvironment,
)
from gymmesh_responses import new_message
from gymmesh_runtime.errors import MeshError
from tests.unit.resource.served import served, task

NO_COMMA = "punctuation:no_comma"
WORDS = "length_constraints:number_words"


def _row(**changes: Any) -> dict[str, Any]:
    few = {"num_words": 5, "relation": "less than"}
    return {"instruction_id_list": [NO_COMMA, WORDS], "kwargs": [None, few]} | changes


async def _verify(row: dict[str, Any], *texts: str, **options: Any) -> rollout_pb2.Verification:
    compat = row.get("compat", "")
    async with served(InstructionFollowingEnvironment(**options)) as environment:
        transcript = [new_message("assistant", text) for text in texts]
        verification = await environment.verify(of=task(**row), transcript=transcript)
        assert verification.compat == compat
        return verification


async def test_a_row_may_ask_for_ifevals_own_verdicts() -> None:
    row = {"instruction_id_list": ["detectable_format:json_format"], "kwargs": [None]}

    assert (await _verify(row, '{"a": NaN}')).reward == 0.0
    assert (await _verify(row | {"compat": "ifeval"}, '{"a": NaN}')).reward == 1.0
    assert (await _verify(row | {"compat": "nemo"}, '{"a": NaN}')).reward == 1.0


async def test_all_instructions_or_a_part() -> None:
    assert (await _verify(_row(), "a b c")).reward == 1.0
    assert (await _verify(_row(), "a, b c")).reward == 0.0
    assert (await _verify(_row(grading_mode="fraction"), "a, b c")).reward == 0.5
    assert (await _verify(_row(), "a, b c", grading_mode="fraction")).reward == 0.5
    assert (await _verify(_row(grading_mode=None), "a b c")).reward == 1.0


async def test_the_last_message_counts() -> None:
    assert (await _verify(_row(), "one, two", "a b")).reward == 1.0
    assert (await _verify(_row())).reward == 0.0


async def test_the_evidence_names_what_was_followed() -> None:
    verification = await _verify(_row(), "a, b c")

    assert json.loads(verification.evidence_json) == {
        "follow_all_instructions": False,
        "follow_instruction_list": [False, True],
        "instruction_id_list": [NO_COMMA, WORDS],
    }


async def test_a_row_may_keep_its_keys_in_metadata() -> None:
    row = {"verifier_metadata": _row(grading_mode="fraction", prompt="…")}

    assert (await _verify(row, "a, b c")).reward == 0.5


async def test_arguments_that_a_table_left_empty() -> None:
    spare = {"num_words": 5.0, "relation": "less than", "keywords": None, "unused": 1}

    assert (await _verify(_row(kwargs=[{"keywords": None}, spare]), "a b")).reward == 1.0


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({}, "instruction_id_list"),
        (_row(instruction_id_list=[]), "instruction_id_list"),
        (_row(instruction_id_list="x"), "instruction_id_list"),
        (_row(instruction_id_list=[1, 2]), "instruction_id_list"),
        (_row(instruction_id_list=["punctuation:no_coma", WORDS]), f"did you mean '{NO_COMMA}'"),
        (_row(kwargs=None), "kwargs"),
        (_row(kwargs=[{}]), "kwargs"),
        (_row(kwargs=[{}, "x"]), "kwargs[1]"),
        (_row(kwargs=[{}, {}]), "kwargs[1].num_words"),
        (_row(kwargs=[{}, {"num_words": 5, "relation": "about"}]), "kwargs[1].relation"),
        (_row(kwargs=[{}, {"num_words": -1, "relation": "at least"}]), "kwargs[1].num_words"),
        (_row(kwargs=[{}, {"num_words": 2.5, "relation": "at least"}]), "kwargs[1].num_words"),
        (_row(kwargs=[{}, {"num_words": True, "relation": "at least"}]), "kwargs[1].num_words"),
        (_row(grading_mode="half"), "grading_mode"),
        ({"verifier_metadata": _row(kwargs=[{}, {}])}, "verifier_metadata.kwargs[1].num_words"),
        ({"instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": []}]}, "keywords"),
        ({"instruction_id_list": ["keywords:word_once"], "kwargs": [{"keyword": " "}]}, "keyword"),
        (
            {"instruction_id_list": ["language:response_language"],
             "kwargs": [{"language": "tlh"}]},
            "kwargs[0].language",
        ),
        (
            {"instruction_id_list": ["letters:letter_counting2"],
             "kwargs": [{"letter": "ab", "let_frequency": 1, "let_relation": "at least"}]},
            "kwargs[0].letter",
        ),
    ],
)  # fmt: skip
async def test_a_broken_row_is_refused_by_its_key(row: dict[str, Any], field: str) -> None:
    async with served(InstructionFollowingEnvironment()) as environment:
        with pytest.raises(MeshError) as caught:
            await environment.create(task(**row))

    assert caught.value.reason_name == "TASK_INVALID"
    assert field in caught.value.message


@pytest.mark.golden
async def test_agrees_with_recorded_rewards(golden_dir: Path) -> None:
    file = golden_dir / "instruction_following.example_rollouts.jsonl"
    recorded = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(recorded) == 5

    for rollout in recorded:
        row = {key: rollout[key] for key in ("instruction_id_list", "kwargs", "prompt")}
        row["compat"] = "nemo"
        verification = await _verify(row, rollout["response"]["output"][-1]["content"][0]["text"])
        evidence = json.loads(verification.evidence_json)
        assert verification.reward == rollout["reward"]
        assert evidence["follow_instruction_list"] == rollout["follow_instruction_list"]


@pytest.mark.golden
async def test_takes_the_recorded_rows_unchanged(golden_dir: Path) -> None:
    file = golden_dir / "instruction_following.example.jsonl"
    async with served(InstructionFollowingEnvironment()) as environment:
        for row in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            del row["responses_create_params"]
            await environment.create(task(**row))
