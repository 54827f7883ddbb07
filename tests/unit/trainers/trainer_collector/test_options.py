"""What a collector refuses of its options, and of task files, before anything is sampled."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import UserError
from gymmesh_resource import Task, TaskInvalid
from gymmesh_trainers import Mix, Stages, TaskSet, TrainerCollector
from tests.unit.trainers.environments import Sums, rows
from tests.unit.trainers.trainer_collector.engines import CountingEngine


def engine() -> CountingEngine:
    return CountingEngine(lambda prompt, number: "1")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"repeats": "4"}, "repeats: must be a whole number, not '4'"),
        ({"repeats": 1.5}, "repeats: must be a whole number, not 1.5"),
        ({"max_attempts": None}, "max_attempts: must be a whole number, not None"),
        ({"concurrency": 0}, "concurrency: must be at least 1, not 0"),
        ({"max_staleness": -1}, "max_staleness: must be at least 0, not -1"),
        ({"append_only": "no"}, "append_only: must be True or False, not 'no'"),
        ({"resume": 1}, "resume: must be True or False, not 1"),
        ({"output": "x.jsonl"}, "output: must be a pathlib.Path, not 'x.jsonl'"),
        ({"timeout_s": "5"}, "timeout_s: must be a positive number of seconds, not '5'"),
        ({"start_step": 1.5}, "start_step: must be a whole number, not 1.5"),
        ({"params": [1]}, "params: must be a dictionary"),
        ({"params": {"temperature": "hot"}}, "params: temperature: must be a number"),
        ({"params": {"temperature": -1}}, "params: temperature: must be a number of at least 0"),
        ({"params": {"temperature": float("nan")}}, "params: temperature: must be a number"),
        ({"params": {"top_p": 1.1}}, "params: top_p: must be a number from 0 to 1, not 1.1"),
        ({"params": {"top_k": 1.5}}, "params: top_k: must be a whole number of at least -1"),
        ({"params": {"min_p": "0"}}, "params: min_p: must be a number from 0 to 1, not a string"),
        ({"params": {"max_output_tokens": 0}}, "params: max_output_tokens: must be a whole number"),
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_meant_is_refused(option: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        TrainerCollector(Sums, model=engine().model, **option)
    assert str(caught.value).startswith(said)


async def test_arguments_of_calls_are_refused_likewise(tmp_path: Path) -> None:
    async with TrainerCollector(Sums, model=engine().model, tasks=rows(1)) as collector:
        for groups in (1.5, "2", True):
            with pytest.raises(TypeError, match="groups: must be a whole number"):
                collector.step(groups=groups)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="number: must be a whole number, not 2"):
            collector.step(number=2.0)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="version: must be at least 0, not -1"):
            await collector.set_weights_version(-1)
        with pytest.raises(TypeError, match="version: must be a whole number, not '3'"):
            await collector.set_weights_version("3")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="params: top_p: must be a number from 0 to 1"):
            await collector.evaluate(rows(1), params={"top_p": 7})


class Checked(Sums):
    """Refuses tasks without an answer."""

    def check_task(self, task: Task) -> None:
        if "answer" not in task.payload:
            raise TaskInvalid("answer", "is missing")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{nonsense", "tasks.jsonl:2: "),
        ({"prompt": "2 + 2?", "seed": "x"}, "tasks.jsonl:2: seed: must be a whole number"),
        ({"prompt": "2 + 2?"}, "tasks.jsonl:2: answer: is missing"),
        ({"prompt": "2 + 2?", "answer": "4", "environment": "other"}, "tasks.jsonl:2: environment"),
    ],
    ids=["no JSON", "a key", "refused by the environment", "an unknown environment"],
)
async def test_a_wrong_row_of_a_file_is_named_before_any_is_run(
    tmp_path: Path, row: Any, said: str
) -> None:
    path = tmp_path / "tasks.jsonl"
    wrong = row if isinstance(row, str) else json.dumps(row)
    path.write_text("".join(f"{line}\n" for line in (json.dumps(rows(1)[0]), wrong)))
    one = engine()
    async with TrainerCollector(Checked, model=one.model, repeats=1) as collector:
        with pytest.raises(UserError) as caught:
            await collector.step(path).next()
    async with TrainerCollector(Checked, model=one.model, repeats=1, tasks=path) as collector:
        with pytest.raises(UserError) as own:
            await collector.step(groups=2).next()
    assert str(own.value) == str(caught.value)
    assert said in str(caught.value)
    assert "changed" not in str(caught.value)
    assert one.calls == 0


def given_as(kind: str, path: Path, good: list[Any], bad: list[Any]) -> Any:
    """Tasks of a collector with bad ones in the middle of a list, a file or a part."""
    given: dict[str, Callable[[], Any]] = {
        "list": lambda: bad,
        "task set": lambda: TaskSet(bad, shuffle=1, seed=3),
        "tuple": lambda: TaskSet(tuple(bad)),
        "task set of a file": lambda: TaskSet(path),
        "stages": lambda: Stages([good, bad], advance_at=0.5),
        "mix": lambda: Mix({"easy": good, "hard": Stages([path], advance_at=0.5)}),
    }
    return given[kind]()


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("list", "tasks[2]: "),
        ("task set", "tasks[2]: "),
        ("tuple", "tasks[2]: "),
        ("task set of a file", "{path}:3: "),
        ("stages", "stages[1]: tasks[2]: "),
        ("mix", "sources['hard']: stages[0]: {path}:3: "),
    ],
)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"answer": None}, "answer: is missing"),
        ({"seed": "x"}, "seed: must be a whole number"),
        (
            {"environment": "chekced"},
            "environment: there is no environment 'chekced'; ",
        ),
    ],
    ids=["refused by the environment", "a key", "an unknown environment"],
)
async def test_a_wrong_task_of_a_collector_s_own_is_named_before_any_is_run(
    tmp_path: Path, kind: str, place: str, wrong: dict[str, Any], said: str
) -> None:
    path = tmp_path / "tasks.jsonl"
    bad = [*rows(2), {**rows(3)[2], **wrong}, *rows(5)[3:]]
    bad[2] = {key: value for key, value in bad[2].items() if value is not None}
    path.write_text("".join(f"{json.dumps(row)}\n" for row in bad))
    one = engine()
    tasks = given_as(kind, path, rows(4), bad)
    async with TrainerCollector(Checked, model=one.model, repeats=1, tasks=tasks) as collector:
        with pytest.raises(UserError) as caught:
            await collector.step(groups=2).next()
    assert str(caught.value).startswith(place.format(path=path) + said)
    assert one.calls == 0


async def test_a_file_without_tasks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n")
    async with TrainerCollector(Sums, model=engine().model) as collector:
        with pytest.raises(UserError, match="jsonl: no tasks found"):
            await collector.step(path).next()
    async with TrainerCollector(Sums, model=engine().model, tasks=path) as collector:
        with pytest.raises(UserError, match="jsonl: no tasks found"):
            await collector.step().next()
