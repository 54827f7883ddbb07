"""Letters that are read from responses, the rows that are refused, and recorded rewards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymmesh.resource.v1 import resource_pb2
from gymmesh_resource.environments.mcqa import verdict
from gymmesh_resource.environments.mcqa.environment import McqaEnvironment
from gymmesh_resource.environments.mcqa.nemo import by_patterns, choose
from gymmesh_resource.environments.mcqa.question import MODES, ChoiceQuestion
from gymmesh_responses import new_message, params_from_json
from gymmesh_runtime.errors import MeshError
from tests.unit.resource.served import new_id, served, task

CASES: list[dict[str, Any]] = yaml.load(
    Path(__file__).with_name("verdicts.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)
OPTIONS = [("A", "Circle"), ("B", "Square"), ("C", "Red square"), ("D", "Triangle")]
ROW_OPTIONS = [{letter: text} for letter, text in OPTIONS]
SHORT = dict(zip(("strict", "boxed", "colon", "md"), MODES, strict=True))


def test_of_a_very_long_response_the_end_is_read() -> None:
    filler, question = "word\n" * 50_000, ChoiceQuestion(OPTIONS)
    assert verdict.choose(f"{filler}Answer: B", question, SHORT["md"]) == "B"
    assert verdict.choose(f"Answer: B\n{filler}", question, SHORT["md"]) is None


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['mode']}: {case['why']}")
def test_case(case: dict[str, Any]) -> None:
    letter = choose(
        case["text"],
        ChoiceQuestion(OPTIONS),
        SHORT[case["mode"]],
        label_in_box=case.get("label", False),
        answer_prefix=case.get("prefix", ""),
    )

    assert letter == case["letter"]


def test_the_table_is_large() -> None:
    assert len(CASES) >= 40
    assert {case["mode"] for case in CASES} == set(SHORT)


@pytest.mark.parametrize(
    ("patterns", "text", "letter"),
    [
        ([r"ANSWER IS\s*([A-Za-z])"], "answer is b", "B"),
        ([r"Answer:\s*([A-Z])"], "Answer: A? No. Answer: D", "D"),
        (["(["], "Answer: A", None),
        ([r"Answer: (\w)", r"Antwort: (\w)"], "Antwort: C", "C"),
        ([r"Choice: (.+)"], "Choice: red  SQUARE", "C"),
        ([r"Choice: (\w)"], "Choice: Z", "Z"),
        ([r"الإجابة:\s*([أ-د])"], "الإجابة: ب", "B"),
        ([r"Choice: (X)?"], "Choice: ", None),
        (["[A-D]$"], "so it is C", "C"),
        ([], "Answer: A", None),
    ],
)
def test_a_tasks_own_patterns(patterns: list[str], text: str, letter: str | None) -> None:
    assert by_patterns(text, patterns, dict(OPTIONS)) == letter


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 50_000,
        "\\boxed{" + "{" * 200_000,
        "\\boxed{" + "\\text{" * 30_000 + "}" * 30_001,
        "Answer: " * 50_000,
        "answer is " * 50_000,
        "Answer:" + " " * 300_000 + "B B",
        "A " * 150_000,
        "\ud800 Answer: \x00",
        "Answer: " + "B' " * 60_000,
    ],
    ids=[
        "unclosed",
        "braces",
        "commands",
        "answers",
        "prefixes",
        "spaces",
        "letters",
        "odd",
        "quotes",
    ],
)
def test_long_and_odd_text_is_judged_in_the_end(mode: Any, text: str) -> None:
    # What is quadratic in any of these would outlast the test's time limit.
    question = ChoiceQuestion(OPTIONS)
    assert verdict.choose(text, question, mode, answer_prefix="answer is") in (None, "A", "B")
    assert choose(text, ChoiceQuestion(OPTIONS), mode, answer_prefix="answer is") in (None, "B")


def _row(**changes: Any) -> dict[str, Any]:
    return {"options": ROW_OPTIONS, "expected_answer": "B"} | changes


async def _reward(text: str, row: dict[str, Any], **options: Any) -> float:
    # A pattern is ended by its processor time, which a busy machine may give late.
    async with served(McqaEnvironment(**options), verify_timeout_s=500) as environment:
        verification = await environment.verify(
            of=task(**row), transcript=[new_message("assistant", text)], timeout=500
        )
        return verification.reward


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"expected_answer": "B"}, "options"),
        (_row(options="A"), "options"),
        (_row(options=[]), "options"),
        (_row(options=["A"]), "options"),
        (_row(options=[{"A": 1}]), "options"),
        (_row(options=[{"A": None}]), "options"),
        (_row(expected_answer="E"), "expected_answer"),
        (_row(expected_answer=" "), "expected_answer"),
        (_row(expected_answer=1), "expected_answer"),
        (_row(grading_mode="guess"), "grading_mode"),
        (_row(template_metadata="x"), "template_metadata"),
        (_row(template_metadata={"output_regex": 5}), "template_metadata.output_regex"),
    ],
)
async def test_a_broken_row_is_refused_by_its_key(row: dict[str, Any], field: str) -> None:
    async with served(McqaEnvironment()) as environment:
        with pytest.raises(MeshError) as caught:
            await environment.create(task(**row))

    assert caught.value.reason_name == "TASK_INVALID"
    assert field in caught.value.message


async def test_a_reference_is_chosen_by_configuration_and_row() -> None:
    row = _row(options=[{"A": "10"}, {"B": "100"}], grading_mode="lenient_boxed")
    text = [new_message("assistant", "\\boxed{100}")]
    async with served(McqaEnvironment()) as environment:
        right = await environment.verify(of=task(**row), transcript=text)
        nemo = await environment.verify(of=task(**row, compat="nemo"), transcript=text)
    async with served(McqaEnvironment(), compat="nemo") as environment:
        configured = await environment.verify(of=task(**row), transcript=text)

    assert (right.reward, nemo.reward, configured.reward) == (1.0, 0.0, 0.0)
    assert right.explanation == "expected B, got B (by lenient_boxed)"
    assert (nemo.compat, configured.compat) == ("nemo", "nemo")


async def test_a_letter_inside_a_word_is_not_what_a_pattern_finds() -> None:
    row = _row(template_metadata={"output_regex": r"ANSWER IS\s*([A-Za-z])"}, expected_answer="C")

    assert await _reward("The answer is clear", row) == 0.0
    assert await _reward("The answer is clear", row | {"compat": "nemo"}) == 1.0
    assert await _reward("The answer is C.", row) == 1.0


async def test_the_row_decides_how_it_is_read() -> None:
    assert await _reward("\\boxed{Square}", _row(options=ROW_OPTIONS[:2])) == 0.0
    lenient = _row(options=ROW_OPTIONS[:2], grading_mode="lenient_boxed")
    assert await _reward("\\boxed{Square}", lenient) == 1.0
    assert await _reward("Answer: B", _row(), grading_mode="lenient_answer_colon") == 1.0
    assert await _reward("", _row()) == 0.0


async def test_a_pattern_comes_first_and_the_mode_second() -> None:
    pattern = {"output_regex": r"Final Choice:\s*([A-Z])"}
    row = _row(template_metadata=pattern)

    assert await _reward("Final Choice: B, \\boxed{A}", row) == 1.0
    assert await _reward("\\boxed{B}", row) == 1.0
    bare = {"expected_answer": "b", "template_metadata": pattern, "options": None}
    assert await _reward("Final Choice: B", bare) == 1.0


async def test_a_response_on_which_a_pattern_runs_away_is_read_by_the_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gymmesh_resource.workers.answer_work.PATIENCE", 1000.0)
    row = _row(template_metadata={"output_regex": "(a+)+$"})

    assert await _reward("a" * 60 + "b", row, pattern_timeout_s=0.5) == 0.0
    assert await _reward("a" * 60 + "b \\boxed{B}", row, pattern_timeout_s=0.5) == 1.0


async def test_a_pattern_that_reads_nothing_in_time_is_a_failure() -> None:
    row = _row(template_metadata={"output_regex": "(?:(?=.)|(?=A)|(?=[AC])){60}(Z)"})

    with pytest.raises(MeshError) as caught:
        await _reward("CB", row, pattern_timeout_s=0.5)

    assert caught.value.reason_name == "VERIFIER_TIMEOUT"


@pytest.mark.parametrize(
    ("prompt", "row", "field"),
    [
        ("Put the letter inside \\boxed{}.", {}, None),
        ("Put the letter inside \\boxed{}.", {"grading_mode": "lenient_boxed"}, None),
        ("End with: 'Answer: LETTER'.", {}, "grading_mode"),
        ("End with: 'Answer: LETTER'.", {"grading_mode": MODES[0]}, "grading_mode"),
        ("End with: 'Answer: LETTER'.", {"grading_mode": "lenient_boxed"}, "grading_mode"),
        ("End with: 'Answer: LETTER'.", {"grading_mode": "lenient_answer_colon"}, None),
        ("End with: 'Answer: LETTER'.", {"grading_mode": "lenient_answer_colon_md"}, None),
        ("Answer in <choice></choice> tags.", {}, "grading_mode"),
        ("Put it in \\boxed{}.", {"grading_mode": "lenient_answer_colon_md"}, "grading_mode"),
        ("'Answer: \\boxed{X}'", {"grading_mode": "lenient_answer_colon"}, "grading_mode"),
        ("'Answer: \\boxed{X}'", {"grading_mode": "lenient_answer_colon_md"}, None),
        ("Say 'Choice: X'.", {"template_metadata": {"output_regex": "Choice: (.)"}}, None),
        ("Say who it was.", {"template_metadata": {"output_regex": "It was (.*)"},
                             "expected_answer": "Ada"}, "expected_answer"),
    ],
)  # fmt: skip
async def test_a_prompt_must_ask_for_what_is_read(
    prompt: str, row: dict[str, Any], field: str | None
) -> None:
    own = task(**_row(**row))
    own.params.CopyFrom(params_from_json({"input": [{"role": "user", "content": prompt}]}))
    async with served(McqaEnvironment()) as environment:
        if field is None:
            await environment.create(own)
            return
        with pytest.raises(MeshError) as caught:
            await environment.create(own)
        assert caught.value.reason_name == "TASK_INVALID"
        assert field in caught.value.message
    # The option is the operator's own word.
    async with served(McqaEnvironment(grading_mode="lenient_answer_colon_md")) as environment:
        if field == "grading_mode":
            await environment.create(own)


@pytest.mark.golden
async def test_agrees_with_recorded_rewards(golden_dir: Path) -> None:
    lines = (golden_dir / "mcqa.example_rollouts.jsonl").read_text(encoding="utf-8").splitlines()
    rows = (golden_dir / "mcqa.example.jsonl").read_text(encoding="utf-8").splitlines()
    tasks = {_prompt(row): row for row in map(json.loads, rows)}
    assert len(lines) == 5

    for recorded in map(json.loads, lines):
        row = tasks[_prompt(recorded)]
        row.pop("responses_create_params", None)
        answer = recorded["response"]["output"][-1]["content"][0]["text"]
        async with served(McqaEnvironment(), compat="nemo") as environment:
            verification = await environment.verify(
                of=task(**row), transcript=[new_message("assistant", answer)]
            )
        evidence = json.loads(verification.evidence_json)
        assert verification.reward == recorded["reward"]
        assert evidence["extracted_answer"] == recorded["extracted_answer"]


def _prompt(row: dict[str, Any]) -> str:
    prompt: str = row["responses_create_params"]["input"][0]["content"]
    return prompt


COLON = {"lenient_answer_colon", "lenient_answer_colon_md"}


@pytest.mark.parametrize(
    "more",
    [
        *({"grading_mode": mode} for mode in MODES),
        {"template_metadata": {"output_regex": r"ANSWER IS\s*([A-Z])"}},
        {"template_metadata": {"output_regex": r"boxed\{([A-Z])\}"}},
    ],
)
async def test_each_choice_is_read_as_its_letter(more: dict[str, Any]) -> None:
    """In the letters' order, whatever the order of the options."""
    prompt = "End with Answer: X" if more.get("grading_mode") in COLON else "Use \\boxed{}"
    async with served(McqaEnvironment()) as one:
        for place, letter in enumerate("ABCD"):
            row = task("t", options=ROW_OPTIONS[::-1], expected_answer=letter, **more)
            row.params.CopyFrom(params_from_json({"input": prompt}))
            request = resource_pb2.CreateSessionRequest(
                task=row, request_id=new_id(), wants_choices=True
            )
            choices = (await one.resource.CreateSession(request, timeout=60.0)).choices
            assert len(choices) == 4
            said = [new_message("assistant", choices[place])]
            assert (await one.verify(of=row, transcript=said)).reward == 1.0
            others = [text for text in choices if text != choices[place]]
            for other in others:
                wrong = await one.verify(of=row, transcript=[new_message("assistant", other)])
                assert wrong.reward == 0.0


async def test_choices_are_only_given_when_asked_for_and_where_a_form_is_read() -> None:
    odd = {"template_metadata": {"output_regex": r"never ([A-Z])"}}
    async with served(McqaEnvironment()) as one:
        row = task("t", options=ROW_OPTIONS, expected_answer="A")
        assert not (await one.create(row)).choices
        row = task("t", options=ROW_OPTIONS, expected_answer="A", **odd)
        request = resource_pb2.CreateSessionRequest(
            task=row, request_id=new_id(), wants_choices=True
        )
        assert not (await one.resource.CreateSession(request, timeout=60.0)).choices
