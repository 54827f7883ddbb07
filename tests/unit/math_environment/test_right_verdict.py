"""Which verdict a task gets, what it rests on, and which tasks get none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.environments.math import MathEnvironment
from gymmesh_resource.environments.math.answers.forms import shown
from gymmesh_resource.environments.math.answers.nodes import Unreadable
from gymmesh_resource.environments.math.answers.reading import Untrue, read
from gymmesh_resource.task import Task
from gymmesh_responses import new_message
from gymmesh_runtime.errors import MeshError
from tests.unit.resource.served import served, task

FALSE_CHAIN = "\\boxed{40=41=42}"


async def verdicts(
    *asked: tuple[rollout_pb2.Task, str],
    options: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
) -> list[rollout_pb2.Verification]:
    """Those of several tasks' answers, by one environment."""
    environment = MathEnvironment(judge_workers=1, **(options or {}))
    async with served(environment, **(config or {})) as mesh:
        return [await mesh.verify("", of, [new_message("assistant", said)]) for of, said in asked]


def evidence(verification: rollout_pb2.Verification) -> dict[str, Any]:
    return json.loads(verification.evidence_json)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("configured", "other"), [("", "nemo"), ("nemo", "")])
async def test_the_reference_has_its_own_verdict(configured: str, other: str) -> None:
    made = await verdicts(
        (task(expected_answer="42"), FALSE_CHAIN),
        (task(expected_answer="42", compat=other), FALSE_CHAIN),
        config={"compat": configured},
    )
    for one, compat in zip(made, (configured, other), strict=True):
        assert one.compat == compat
        assert one.verifier_version == ("5+nemo" if compat else "5")
        assert one.reward == float(compat == "nemo")


async def test_a_verdict_is_explained() -> None:
    of = task(expected_answer="42")
    answers = ("\\boxed{41}", "I do not know.", "\\boxed{6\\cdot7}")
    wrong, none, question = await verdicts(*((of, answer) for answer in answers))
    assert wrong.explanation == "expected 42, got 41"
    assert none.explanation == "expected 42, found no answer"
    assert "still has to be computed" in question.explanation
    assert "still has to be computed" in evidence(question)["failure_reason"]


async def test_what_was_coerced_is_in_the_evidence() -> None:
    cases = [
        ("3.14", "\\boxed{3.14159}", "rounded"),
        ("10", "\\boxed{10\\text{ cm}}", "unit"),
        ("5", "\\boxed{x=5}", "name x"),
        ("cat", "\\boxed{Cat}", "as text"),
        ("x^2", "\\boxed{x\\cdot x}", "points"),
        ("\\int_0^1 x dx", "\\boxed{\\frac12}", "math-verify"),
        ("5", "x" * 20_000 + " so the answer is 5", "were not searched"),
    ]
    made = await verdicts(*((task(expected_answer=one[0]), one[1]) for one in cases))
    for (expected, _, compared), one in zip(cases, made, strict=True):
        assert one.reward == 1.0, expected
        assert any(compared in note for note in evidence(one)["compared"]), expected


@pytest.mark.parametrize(
    "expected",
    ["", "It depends on the initial conditions.", "x=5=6", "\\frac10", "???", "\\foo{2}", "12_2"],
)
async def test_a_task_that_nobody_can_solve_is_found_before_a_model_is_called(
    expected: str,
) -> None:
    async with served(MathEnvironment(judge_workers=1)) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.create(task(expected_answer=expected))
    assert caught.value.reason_name == "TASK_INVALID"
    assert caught.value.metadata["field"] == "expected_answer"


def test_a_judge_may_compare_sentences() -> None:
    sentence = Task(task(expected_answer="It depends on the initial conditions."))
    MathEnvironment(judge=True).check_task(sentence)
    followed = Task(task(expected_answer="It depends on x.", compat="nemo"))
    MathEnvironment().check_task(followed)


@pytest.mark.parametrize("evaluated", [None, True, False])
async def test_the_question_is_no_answer(evaluated: bool | None) -> None:
    said = [{"role": "user", "content": "What is 2^10?"}]
    rows = [{"prompt": prompt, "expected_answer": "1024"} for prompt in ("What is 2^{10}?", said)]
    made = await verdicts(
        *((Task.of(row).message, "\\boxed{2^{10}}") for row in rows),
        *((Task.of(row).message, "\\boxed{2^{10}=1024}") for row in rows),
        options={"evaluated": evaluated},
    )
    asked = float(evaluated is False)
    assert [one.reward for one in made] == [asked, asked, 1.0, 1.0]


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("\\dfrac{1}{2}", ["(1/2)"]),
        ("1{,}234.", ["1234"]),
        ("\\left(2,\\infty\\right)", ["(2, infty)"]),
        ("x\\ge 3", ["[3, infty)"]),
        ("\\{1, 2\\}", ["set(1, 2)"]),
        ("\\pm 2", ["list(2, -2)"]),
        ("y = 2x", ["y = (2*x)"]),
        ("2 \\text{ km/h}", ["2 [5/18 m s^-1]"]),
        ("1 1/2", ["mixed(1, (1/2))"]),
        ("14:30", ["'time 14:30'", "(14/30)"]),
        ("1,000", ["1000"]),
        ("\\mathrm{e}^{\\mathrm{i}\\pi}", ["(e^(i*pi))"]),
        ("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", ["matrix(tuple(1, 2), tuple(3, 4))"]),
    ],
)
def test_reading(text: str, forms: list[str]) -> None:
    assert list(map(shown, read(text))) == forms


@pytest.mark.parametrize("text", ["", "2 +", "1 2", "\\int x", "5 (", "x" * 5_000, "(" * 500])
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(Unreadable):
        read(text)


@pytest.mark.parametrize(
    "text", ["8=7", "41\\to42", "x=1=2", "2x=84\\implies x=41", "\\pi\\approx3.2"]
)
def test_what_is_not_true(text: str) -> None:
    with pytest.raises(Untrue):
        read(text)
