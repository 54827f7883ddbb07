"""Rows of public data sets become tasks that can be solved: the right answer gets the reward."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client import UserError
from gymmesh_data.imports import Columns, Imports, import_file
from gymmesh_resource import Rollout, Session, Task, Verdict
from gymmesh_resource.registry import make_environment
from gymmesh_responses import new_message
from tests.support.cli import run

ARC = {
    "id": "q1",
    "question": "Which is a gas?",
    "choices": {"text": ["ice", "steam", "rock"], "label": ["1", "2", "3"]},
    "answerKey": "2",
}

MATRIX = "\\begin{pmatrix}\n1 & 2\n\\end{pmatrix}"


def imported(folder: Path, row: Any, **options: Any) -> dict[str, Any]:
    source, output = folder / "rows.jsonl", folder / "tasks.jsonl"
    source.write_text(json.dumps(row) + "\n")
    import_file([source], output, "hf", Imports(**options), overwrite=True)
    (line,) = output.read_text().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


async def rewards(environment: str, row: dict[str, Any], *answers: str) -> list[float]:
    """What answers to a task are worth."""
    made, task = make_environment(environment, {}), Task.of(row)
    made.check_task(task)
    worth = []
    for answer in answers:
        rollout = Rollout(
            task, [new_message("assistant", answer)], rollout_pb2.STOP_REASON_MODEL_FINISHED
        )
        found: Any = made.verify(Session("s", task, 1, None), rollout)
        if asyncio.iscoroutine(found):
            found = await found
        worth.append(found.reward if isinstance(found, Verdict) else float(found))
    await made.close_processes()
    return worth


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("She has 3 + 4 = <<3+4=7>>7 pens.\n#### 7", "7"),
        ("Two steps.\n\n####  1,234 \n", "1234"),
        ("So $x = \\frac{1}{2}$, hence \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
        ("First \\boxed{1}, then we find that it is \\boxed{2}.", "2"),
        ("-12,500.5", "-12500.5"),
        ("42", "42"),
        ("x^2 + 2x + 1", "x^2 + 2x + 1"),
    ],
)
async def test_a_worked_solution_gives_its_final_answer(
    tmp_path: Path, answer: str, expected: str
) -> None:
    for columns in (Columns(), Columns({"expected_answer": "answer"})):
        row = imported(tmp_path, {"question": "How many?", "answer": answer}, columns=columns)
        assert row["expected_answer"] == expected
        assert row.get("answer", answer) == answer
        right, wrong = f"It is \\boxed{{{expected}}}.", "It is \\boxed{99}."
        assert await rewards("math", row, right, wrong) == [1.0, 0.0]


@pytest.mark.parametrize(
    "answer",
    [
        "She has three pens and buys four, so she has seven pens.",
        "She has 3 + 4 = 7 pens",
        "Ann has 3.\nBob has 4.\nTogether 7",
        "several\nlines",
        "",
        " \n",
        "Photosynthesis turns light into energy that plants can store and use at a later time",
    ],
)
def test_an_expected_answer_that_is_prose_is_refused(tmp_path: Path, answer: str) -> None:
    row = {"question": "How many?", "answer": answer}
    with pytest.raises(
        UserError, match=r"rows.jsonl:1: expected_answer: .* no answer can match this"
    ):
        imported(tmp_path, row)
    assert imported(tmp_path, row, keep_prose=True)["expected_answer"] == answer.strip()


def test_a_named_column_that_is_null_is_no_expected_answer(tmp_path: Path) -> None:
    row = {"question": "?", "hints": None}
    with pytest.raises(
        UserError, match="expected_answer: is null, so no answer can match this value"
    ):
        imported(tmp_path, row, columns=Columns({"expected_answer": "hints"}))


@pytest.mark.parametrize("answer", ["no marker here but words that explain", None])
def test_what_the_environment_refuses_is_refused(tmp_path: Path, answer: str | None) -> None:
    rows = [{"question": "a", "answer": "#### 7"}, {"question": "b", "answer": answer}]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["import", "x.jsonl", "--format", "hf", "-o", "tasks.jsonl", "--overwrite"]
    refused = run(*command, "--env", "math", cwd=tmp_path)
    assert refused.code == 1
    refused.said("x.jsonl:2: expected_answer: ", "environment 'math' rejects the row")
    for more in (["--env", "math", "--keep-prose"], ["--env", "of_my_own"], []):
        taken = run(*command, *more, cwd=tmp_path)
        assert taken.code == 0, taken.err


@pytest.mark.parametrize(
    "answer", ["Treaty of Versailles", "Paris", "yes", "To be, or not to be?", MATRIX]
)
def test_a_short_answer_in_words_is_taken(tmp_path: Path, answer: str) -> None:
    row = {"question": "What?", "answer": answer}
    assert imported(tmp_path, row)["expected_answer"] == answer


@pytest.mark.parametrize(
    ("row", "right"),
    [
        (ARC, "B"),
        ({"question": "?", "choices": ["a", "b", "c", "d"], "answer": 3, "subject": "x"}, "D"),
        ({"question": "?", "options": ["a", "b", "c"], "answer": "C", "answer_index": 2}, "C"),
        ({"question": "?", "options": {"A": "x", "B": "y"}, "answer": "y", "answer_idx": "B"}, "B"),
        ({"ctx": "He opens", "endings": ["a", "b", "c", "d"], "label": "0"}, "A"),
        ({"sentence": "The _ is", "option1": "cat", "option2": "dog", "answer": "2"}, "B"),
        ({"article": "Long.", "question": "?", "options": ["a", "b"], "answer": "A"}, "A"),
        ({"question_stem": "?", "choices": {"text": ["a", "b"], "label": ["A", "B"]},
          "answerKey": "B"}, "B"),
        ({"question": "?", "choices": ["a", "b"], "answer": "b"}, "B"),
    ],
    ids=["arc", "mmlu", "mmlu-pro", "medqa", "hellaswag", "winogrande", "race", "openbookqa",
         "by text"],
)  # fmt: skip
async def test_a_multiple_choice_row_is_a_task_of_mcqa(
    tmp_path: Path, row: dict[str, Any], right: str
) -> None:
    task = imported(tmp_path, row)
    wrong = "A" if right != "A" else "B"
    answers = (f"\\boxed{{{right}}}", f"\\boxed{{{wrong}}}")
    assert await rewards("mcqa", task, *answers) == [1.0, 0.0]
    prompt = task["responses_create_params"]["input"][0]["content"]
    assert "\\boxed{}" in prompt
    assert all(text in prompt for key in ("article", "question") if (text := row.get(key)))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (ARC | {"answerKey": "9"}, "answerKey: '9' is not one of the row's 3 options"),
        (
            {key: ARC[key] for key in ("question", "choices")},
            "names the right option",
        ),
        ({"question": "?", "choices": ["a", "b"], "answer": -1}, "answer: -1 is not one"),
    ],
)
def test_a_choice_without_a_right_option_is_refused(tmp_path: Path, row: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        imported(tmp_path, row)
