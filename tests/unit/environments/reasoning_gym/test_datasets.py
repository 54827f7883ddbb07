"""Every dataset of the library: generated, scored, and safe from what an answer may contain."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymmesh.resource.v1 import resource_pb2
from gymmesh_resource.environments.reasoning_gym import ReasoningGymEnvironment, scoring
from gymmesh_resource.environments.reasoning_gym.generate import main
from gymmesh_resource.workers import ProcessPool
from tests.support.optional import require
from tests.unit.resource.served import TIMEOUT, served

require(importlib.util.find_spec("reasoning_gym"), "reasoning-gym", "pip install reasoning-gym")

GENERATE = "gymmesh_resource.environments.reasoning_gym.generate"
# Entries without an answer of their own: one that their metadata gives, or none that is known.
OWN_ANSWERS: dict[str, Callable[[dict[str, Any]], str] | None] = {
    "boxnet": None,
    "rush_hour": None,
    "graph_color": lambda metadata: json.dumps(metadata["possible_answer"]),
    "propositional_logic": lambda metadata: str(metadata["example_answer"]),
    "rubiks_cube": lambda metadata: str(metadata["example_correct_answer"]),
}
SECONDS = 20.0
GARBAGE = (
    *(
        "qqq garbage",
        "",
        "None",
        "null",
        "[[[",
        "[]",
        "{}",
        "9" * 50,
        "nan",
        "inf",
        "-inf",
        "1e999",
    ),
    *("nan+nanj", "0", "1", "-1", "0.0000001", "true", "yes", "A", "1*2*3*4", "x", "I don't know"),
)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """One row of each dataset."""

    async def generate() -> bytes:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", GENERATE, "--count=105", "--seed=7"),
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(100):
            output, _ = await process.communicate()
        assert process.returncode == 0
        return output

    return [json.loads(line) for line in asyncio.run(generate()).splitlines()]


@pytest.fixture
async def pool() -> Any:
    async with ProcessPool(workers=1, warm_up=scoring.warm_up) as pool:
        yield pool


async def _score(pool: ProcessPool, row: dict[str, Any], answer: str) -> float:
    entry = {key: row[key] for key in ("question", "answer", "metadata")}
    dataset = row["metadata"]["source_dataset"]
    score = await pool.run(scoring.score, dataset, answer, entry, True, timeout=SECONDS)
    return score.value


def _is_answer(garbage: str, own: str) -> bool:
    """Whether what is garbage elsewhere is the row's own answer."""
    try:
        return float(garbage) == float(own)
    except ValueError:
        return garbage.casefold() == own.casefold()


async def test_own_answers_score_one_and_garbage_does_not(
    rows: list[dict[str, Any]], pool: ProcessPool
) -> None:
    names = await pool.run(scoring.dataset_names, timeout=SECONDS)
    assert {row["metadata"]["source_dataset"] for row in rows} == names
    wrong: list[tuple[str, str, float]] = []
    for row in rows:
        name = row["metadata"]["source_dataset"]
        own = OWN_ANSWERS[name] if name in OWN_ANSWERS else lambda _, row=row: row["answer"]
        if own is not None and (value := await _score(pool, row, own(row["metadata"]))) != 1.0:
            wrong.append((name, "own", value))
        for garbage in (*GARBAGE, row["question"]):
            value = await _score(pool, row, garbage)
            if not value < 1.0 and not _is_answer(garbage, row["answer"] or ""):
                wrong.append((name, garbage, value))
    assert not wrong


async def test_no_answer_is_executed(
    rows: list[dict[str, Any]], pool: ProcessPool, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    hostile = [
        f"__import__('pathlib').Path('{mark}').touch()",
        f"open('{mark}', 'w')",
        f"[open('{mark}', 'w')]",
        f"exec(\"open('{mark}', 'w')\")",
        f"(lambda: open('{mark}', 'w'))()",
        f"x.__class__.__base__.__subclasses__() or open('{mark}', 'w')",
    ]
    for row in rows:
        for answer in hostile:
            assert await _score(pool, row, answer) < 1.0, row["metadata"]["source_dataset"]
    assert not mark.exists()


async def test_no_row_is_executed(pool: ProcessPool, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    problem = f"open('{mark}', 'w')"
    metadata = {"source_dataset": "bitwise_arithmetic", "problem": problem}
    row = {"question": "?", "answer": "0x1", "metadata": metadata}
    assert await _score(pool, row, "0x1") < 1.0
    assert not mark.exists()


async def test_generated_tasks_are_listed_and_run() -> None:
    environment = ReasoningGymEnvironment(
        datasets=["gcd", "spell_backward"], count=3, seed=5, score_workers=1
    )
    async with served(environment) as mesh:
        request = resource_pb2.ListTasksRequest()
        examples = (await mesh.resource.ListTasks(request, timeout=TIMEOUT)).tasks
        assert [task.task_id for task in examples] == ["gcd-5-0", "spell_backward-5-0", "gcd-5-1"]
        created = await mesh.create(examples[0])
        await mesh.close(created.session_id)


def test_the_same_seed_makes_the_same_rows(tmp_path: Path) -> None:
    def rows(seed: int, name: str) -> list[dict[str, Any]]:
        file = tmp_path / name
        arguments = ["--dataset=gcd", "--dataset=gcd", "--count=4", f"--seed={seed}"]
        assert main([*arguments, f"--output={file}"]) == 0
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]

    first = rows(3, "a")
    assert first == rows(3, "b")
    assert first != rows(4, "c")
    assert len({row["question"] for row in first}) == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--dataset=nonsense"], "no dataset 'nonsense'"),
        (["--dataset=gcd", "--count=0"], "at least 1"),
        (["--dataset=gcd", "--config=[]"], "JSON object"),
        (["--dataset=gcd", "--config={"], "error: "),
        (["--dataset=gcd", '--config={"no_such_setting": 1}'], "rejects its settings"),
    ],
)
def test_what_cannot_be_generated_is_said(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert says in capsys.readouterr().err
