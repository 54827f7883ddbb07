"""Rows in the columns of public data sets become tasks whose right answers win, and no others."""

from __future__ import annotations

import csv
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from gymmesh_audit import Attack, Gold, Player
from gymmesh_client import UserError
from gymmesh_data.imports import Columns
from gymmesh_data.imports.datasets import TRANSFORMATIONS, recipe_named, recipe_of, recipes
from gymmesh_mesh.compose import open_here
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.service import ResourceService
from gymmesh_runtime.peers import PeerDirectory
from tests.support.cli import run
from tests.unit.data.datasets.importing import following, imported, tasks_of, written
from tests.unit.data.datasets.shapes import BAD, CALLS, GOOD, REFUSED, RIGHT

Json = dict[str, Any]


def attack(gold: Gold) -> Attack:
    return Attack("an answer", "gold", gold.message or None, calls=gold.calls)


def wrong_answers(name: str, right: Gold, golds: list[Gold]) -> list[Gold]:
    """What earns nothing where `right` is right: the other rows' answers that differ."""
    if name == "ifeval":
        return [Gold("Well, THIS is a text of many more than nine words, without quotes and such.")]
    if name == "bfcl-irrelevance":
        return [Gold("", "calls", calls=[("stop", {})]), Gold("")]
    return [one for one in golds if (one.answer, one.calls) != (right.answer, right.calls)]


@asynccontextmanager
async def played(environment: str) -> AsyncIterator[Player]:
    """Plays answers to tasks of an environment as it is by default."""
    config = EnvironmentConfig(use=environment, audit=True, verify_timeout_s=120.0)
    service = ResourceService(config, environment, f"{environment}-0")
    async with AsyncExitStack() as stack:
        directory = PeerDirectory()
        stack.push_async_callback(directory.close)
        opened = await open_here(service, directory, stack)
        player = Player(directory, opened, make_arguments=lambda schema: None)
        await player.open()
        yield player


def test_every_recipe_has_rows_here() -> None:
    assert {one.name for one in recipes() if one.environment} == set(GOOD)
    assert {one.name for one in recipes() if one.refused} == set(REFUSED)
    assert all(len(rows) >= 5 for rows in GOOD.values())
    assert {one.name: one.tried for one in recipes() if one.environment} == {
        name: len(rows) for name, rows in GOOD.items()
    }
    used = {made.by for one in recipes() for made in one.made.values()}
    assert used == set(TRANSFORMATIONS)


@pytest.mark.parametrize("name", GOOD)
def test_a_data_set_is_told_by_its_columns(tmp_path: Path, name: str) -> None:
    tasks = imported(tmp_path, written(tmp_path, GOOD[name]))
    assert len(tasks) == len(GOOD[name])
    assert {task["environment"] for task in tasks} == {recipe_named(name).environment}
    assert tasks == imported(tmp_path, written(tmp_path, GOOD[name]), dataset=name)


@pytest.mark.parametrize("name", RIGHT)
def test_the_expected_answer_is_the_right_one(tmp_path: Path, name: str) -> None:
    tasks = imported(tmp_path, written(tmp_path, GOOD[name]))
    found = []
    for task in tasks:
        choices = {key: text for one in task.get("options", []) for key, text in one.items()}
        prompt = task["responses_create_params"]["input"][-1]["content"]
        assert all(f"\n{key}: {text}" in prompt for key, text in choices.items())
        found.append(choices.get(task["expected_answer"], task["expected_answer"]))
    assert found == RIGHT[name]


@pytest.mark.parametrize("name", CALLS)
def test_the_expected_calls_are_the_right_ones(tmp_path: Path, name: str) -> None:
    tasks = imported(tmp_path, written(tmp_path, GOOD[name]))
    assert [task["expected_answers"] for task in tasks] == CALLS[name]


def test_types_of_functions_become_json_schema(tmp_path: Path) -> None:
    third, fourth = imported(tmp_path, written(tmp_path, GOOD["xlam"]))[2:4]
    (tool,) = third["responses_create_params"]["tools"]
    assert tool["name"] == "math_add"
    assert tool["parameters"] == {
        "type": "object",
        "properties": {
            "values": {"type": "array", "items": {"type": "number"}, "description": "what"}
        },
        "required": ["values"],
    }
    lamp, _ = fourth["responses_create_params"]["tools"]
    assert lamp["parameters"]["properties"] == {"on": {"type": "boolean"}}
    assert lamp["parameters"]["required"] == []
    (first, *_) = imported(tmp_path, written(tmp_path, GOOD["bfcl"]))
    (trip,) = first["responses_create_params"]["tools"]
    assert trip["parameters"]["type"] == "object"
    kinds = {key: one["type"] for key, one in trip["parameters"]["properties"].items()}
    assert kinds == {
        "to": "string",
        "seats": "integer",
        "price": "number",
        "stops": "array",
        "extras": "object",
    }


@pytest.mark.parametrize("name", GOOD)
async def test_right_answers_win_and_wrong_ones_lose(tmp_path: Path, name: str) -> None:
    tasks = tasks_of(tmp_path, name)
    async with played(recipe_named(name).environment) as player:
        golds = [(await player.golds(task) or following(task))[0] for task in tasks]
        for task, gold in zip(tasks, golds, strict=True):
            right = await player.play(task, attack(gold))
            assert right.reward == 1.0, (task.task_id, gold, right)
            for wrong in wrong_answers(name, gold, golds):
                lost = await player.play(task, attack(wrong))
                assert lost.reward == 0.0, (task.task_id, wrong, lost)


@pytest.mark.parametrize(("name", "row", "reason"), BAD)
def test_a_row_that_does_not_fit_is_named(
    tmp_path: Path, name: str, row: Json, reason: str
) -> None:
    source = written(tmp_path, [*GOOD[name], row])
    with pytest.raises(UserError, match=rf"rows.jsonl:{len(GOOD[name]) + 1}: .*{reason}"):
        imported(tmp_path, source)
    assert not (tmp_path / "tasks.jsonl").exists()
    assert len(imported(tmp_path, source, skip_invalid=True)) == len(GOOD[name])
    (left_out,) = (tmp_path / "tasks.skipped.jsonl").read_text().splitlines()
    assert json.loads(left_out)["place"].endswith(f"rows.jsonl:{len(GOOD[name]) + 1}")


@pytest.mark.parametrize("name", REFUSED)
def test_a_data_set_that_nothing_judges_is_refused_by_name(tmp_path: Path, name: str) -> None:
    recipe = recipe_named(name)
    with pytest.raises(UserError) as raised:
        imported(tmp_path, written(tmp_path, REFUSED[name]))
    assert f"rows.jsonl is the data set {recipe.title}, which can't be imported. " in str(
        raised.value
    )
    assert recipe.refused in str(raised.value)
    assert [one.name for one in tmp_path.iterdir()] == ["rows.jsonl"]


def test_an_unknown_shape_is_shown_with_a_guess_and_a_question(tmp_path: Path) -> None:
    row = {"the question": "Why? " * 40, "final answer": "7\x1b[2J", "level": 3, "tags": [1]}
    written(tmp_path, [row])
    done = run("import", "rows.jsonl", "--output", "tasks.jsonl", cwd=tmp_path)
    assert done.code == 1
    done.said(
        "rows.jsonl: matches no known data set",
        "the question  text     Why? Why? Why?",
        "final answer  text     7?[2J",
        "level         number   3",
        "Nearest known data sets:",
        "lacks ",
        "Is the prompt in the column 'the question' and the answer in the column 'final answer'?",
        "--format hf --column input='the question' --column expected_answer='final answer'",
    )
    assert "Why? " * 20 not in done.err
    assert [one.name for one in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_file_of_tasks_needs_no_import(tmp_path: Path) -> None:
    row = {"environment": "math", "responses_create_params": {"input": "1 + 1?"}, "gold": "2"}
    written(tmp_path, [row])
    done = run("import", "rows.jsonl", "--output", "tasks.jsonl", cwd=tmp_path)
    assert done.code == 1
    done.said("rows of a gymmesh task file", "gym-cli collect --input")
    assert "--column" not in done.err


def test_a_file_without_rows_is_of_no_data_set(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"rows.jsonl: has no rows that are JSON objects"):
        imported(tmp_path, written(tmp_path, []))


def test_the_command_says_which_data_set_it_found(tmp_path: Path) -> None:
    written(tmp_path, GOOD["gsm8k"], "a.jsonl")
    written(tmp_path, GOOD["arc"], "b.jsonl")
    command = ["import", "a.jsonl", "b.jsonl", "-o", "tasks.jsonl"]
    done = run(*command, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "data set      gsm8k, 6 rows" in done.out
    assert "data set      arc, 5 rows" in done.out
    done = run(*command, "--json", "--overwrite", cwd=tmp_path)
    assert json.loads(done.out)["datasets"] == {"gsm8k": 6, "arc": 5}
    checked = run("data", "validate", "tasks.jsonl", cwd=tmp_path)
    assert checked.code == 0, checked.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--column", "input=question"], "--column and --score need another --format"),
        (["--format", "hf", "--dataset", "gsm8k"], "--dataset needs --format known"),
        (["--dataset", "gsm8"], "did you mean 'gsm8k'?"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path, more: list[str], said: str
) -> None:
    written(tmp_path, GOOD["gsm8k"])
    done = run("import", "rows.jsonl", "-o", "tasks.jsonl", *more, cwd=tmp_path)
    assert done.code != 0
    done.said(said)


def test_the_caller_may_name_another_environment(tmp_path: Path) -> None:
    (first, *_) = imported(tmp_path, written(tmp_path, GOOD["gsm8k"]), environment="mine")
    assert first["environment"] == "mine"


def test_further_columns_become_keys_unless_they_are_left_out(tmp_path: Path) -> None:
    source = written(tmp_path, [row | {"split": "train", "empty": None} for row in GOOD["arc"]])
    (first, *_) = imported(tmp_path, source)
    assert first["split"] == "train"
    assert set(first) == {
        *("task_id", "environment", "responses_create_params"),
        *("split", "options", "expected_answer"),
    }
    (first, *_) = imported(tmp_path, source, columns=Columns(only=True))
    assert "split" not in first


def test_one_bad_row_at_the_top_does_not_hide_the_data_set() -> None:
    rows = [{"question": None, "answer": None}, *GOOD["gsm8k"]]
    found = recipe_of(rows)
    assert found is not None
    assert found.name == "gsm8k"
    assert recipe_of([{"question": "a", "answer": "b"}]) is None


@pytest.mark.parametrize("name", sorted(set(GOOD) - {"bfcl", "bfcl-irrelevance"}))
def test_tables_give_the_same_tasks(tmp_path: Path, name: str) -> None:
    rows = GOOD[name]
    if name == "hotpotqa":
        rows = [row for row in rows if "id" in row]
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert imported(tmp_path, path) == imported(tmp_path, written(tmp_path, rows))


def test_csv_is_read_row_by_row_with_the_line_of_each(tmp_path: Path) -> None:
    path, names = tmp_path / "gpqa.csv", list(GOOD["gpqa"][0])
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        table = csv.DictWriter(file, names)
        table.writeheader()
        table.writerows(GOOD["gpqa"])
    same = written(tmp_path, GOOD["gpqa"])
    assert imported(tmp_path, path) == imported(tmp_path, same)
    good = path.read_text(encoding="utf-8-sig")
    path.write_text(good + "too,few\n")
    # The question of one row and the answer of another are of two lines each.
    place = f"gpqa.csv:{len(GOOD['gpqa']) + 4}"
    with pytest.raises(UserError, match=rf"{place}: has 2 fields, but the file has 6 columns"):
        imported(tmp_path, path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'a,b\n1,"2\n', r"x.csv:3?2?: not CSV"),
        (b"a,a\n1,2\n", "x.csv:1: has two columns with the same name"),
        (b"a,b\n1,\xff\n", "x.csv: not UTF-8"),
    ],
)
def test_what_is_no_csv_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=reason):
        imported(tmp_path, path)


def test_choices_of_gpqa_are_not_always_right_at_the_top(tmp_path: Path) -> None:
    rows = [row | {"Question": f"{number}?"} for number in range(40) for row in GOOD["gpqa"][:1]]
    for number, row in enumerate(rows):
        row["Record ID"] = f"r{number}"
    tasks = imported(tmp_path, written(tmp_path, rows))
    assert {task["expected_answer"] for task in tasks} == set("ABCD")


def test_the_prompt_has_no_answer(tmp_path: Path) -> None:
    for name, secret in (("gsm8k", "<<3+4"), ("math", "So it is"), ("mbpp", "assert twice(-3)")):
        (first, *_) = imported(tmp_path, written(tmp_path, GOOD[name]))
        assert secret not in json.dumps(first["responses_create_params"])
