"""gym-cli env: a folder that works as written, a trial that finds faults, a list that tells."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import Ended, run

GUESSER = '''
from gymmesh_resource import Environment, Verdict

class Kind(Environment[None]):
    """Asks a judge whether the answer is kind."""
    models = ("judge",)
    examples = "kind.jsonl"

    async def verify(self, session, rollout):
        answer = await session.ask("judge", rollout.text)
        return Verdict(float(answer.text == "OK"))

class Careless(Environment[None]):
    """Does not look at its tasks."""
    examples = "kind.jsonl"

    def verify(self, session, rollout):
        return float(rollout.answer == rollout.task.payload.get("wanted", {})[:])
'''
TASK = {"task_id": "one", "responses_create_params": {"input": "Say something."}, "wanted": "x"}


def gym(folder: Path, *arguments: str) -> Ended:
    return run(*arguments, cwd=folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kind.py").write_text(GUESSER)
    (tmp_path / "kind.jsonl").write_text(json.dumps(TASK) + "\n")
    return tmp_path


def test_a_new_environment_passes_its_trial_and_its_tests(tmp_path: Path) -> None:
    made = gym(tmp_path, "env", "init", "word-count")
    assert made.code == 0, made.err
    assert "gym-cli env test word-count/" in made.out
    tried = gym(tmp_path, "env", "test", "word-count/", "--json")
    assert tried.code == 0, tried.out + tried.err
    found = json.loads(tried.out)["WordCountEnvironment"]
    assert {one["check"]: one["detail"] for one in found}["tools"] == "letter"
    assert all(one["fine"] and not one["warning"] for one in found)
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"],
        cwd=tmp_path / "word-count",
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert tests.returncode == 0, tests.stdout + tests.stderr
    written = [path for path in (tmp_path / "word-count").rglob("*.*") if path.suffix != ".pyc"]
    marks = re.compile(r"@(name|folder|package|class)@")
    assert not [path for path in written if path.is_file() and marks.search(path.read_text())]


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("x")
    done = gym(tmp_path, "env", "init", "mine")
    assert done.code == 2
    assert "mine already exists" in done.err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["precious.txt"]


@pytest.mark.parametrize("name", ["Word", "2words", "a/b", "class", "a b"])
def test_names_that_cannot_be(tmp_path: Path, name: str) -> None:
    done = gym(tmp_path, "env", "init", name)
    assert done.code == 2
    assert "is not a valid name of an environment" in done.err
    assert not list(tmp_path.iterdir())


def test_a_word_of_python_is_said_to_be_one(tmp_path: Path) -> None:
    done = gym(tmp_path, "env", "init", "class")
    assert "is a Python keyword, so it is not a valid name of an environment" in done.err


def test_a_stand_in_answers_for_a_judge(folder: Path) -> None:
    done = gym(folder, "env", "test", "kind.py:Kind", "--sessions", "5")
    assert done.code == 0, done.out + done.err
    assert 'a stand-in that always answers "OK" replaces the models judge' in done.out
    assert "1 x reward 1" in done.out


def test_a_file_is_tried_class_by_class_and_a_fault_is_found(folder: Path) -> None:
    done = gym(folder, "env", "test", "kind.py", "--sessions", "5")
    assert done.code == 1
    kind, _, careless = done.out.partition("\nCareless\n")
    assert "BAD" not in kind
    bad = [line for line in careless.splitlines() if "BAD" in line]
    assert len(bad) == 1, bad
    assert "a task without its keys" in bad[0]
    assert "raise TaskInvalid" in bad[0]
    # Where it broke is shown, too.
    assert "TypeError: unhashable type: 'slice'" in done.err


RAISER = """
from gymmesh_resource import Environment, tool

class Raiser(Environment[None]):
    'Has a tool that always breaks, and a verdict that is always the same.'
    examples = 'kind.jsonl'

    @tool
    def look(self, where: str, often: int) -> str:
        'Look.'
        raise RuntimeError('out of order')

    def verify(self, session, rollout):
        return 1
"""


def test_a_tool_that_always_breaks_and_a_reward_for_nothing_are_found(folder: Path) -> None:
    (folder / "raiser.py").write_text(RAISER)
    done = gym(folder, "env", "test", "raiser.py:Raiser", "--sessions", "5", "--json")
    assert done.code == 1
    found = {one["check"]: one for one in json.loads(done.out)["Raiser"]}
    assert not found["calls"]["fine"]
    assert "RuntimeError: out of order at raiser.py:11" in found["calls"]["detail"]
    warned = [check for check, one in found.items() if one["warning"]]
    assert warned == ["verdict on nothing", "verdict on an empty answer", "audit"]
    text = gym(folder, "env", "test", "raiser.py:Raiser", "--sessions", "5").out
    assert "warn  verdict on nothing" in text
    assert "3 with a warning" in text


def test_a_warning_alone_is_no_failure(folder: Path) -> None:
    (folder / "raiser.py").write_text(
        RAISER.replace("raise RuntimeError('out of order')", "return 'x'")
    )
    done = gym(folder, "env", "test", "raiser.py:Raiser", "--sessions", "5")
    assert done.code == 0, done.out
    assert "4 with a warning" in done.out


def test_examples_that_are_missing_stop_no_run(folder: Path) -> None:
    (folder / "kind.jsonl").unlink()
    (folder / "tasks.jsonl").write_text(json.dumps(TASK) + "\n")
    (folder / "mesh.yaml").write_text(
        "environments: {careless: {use: 'kind.py:Careless'}}\n"
        "models: {policy: {backend: replay, path: answers.jsonl}}\n"
        "defaults: {environment: careless}\n"
    )
    (folder / "answers.jsonl").write_text('{"match": "*", "answers": [{"text": "x"}]}\n')
    done = gym(folder, "run", "--config", "mesh.yaml", "--task", "tasks.jsonl:1")
    assert done.code == 0, done.err
    assert "verified reward 1" in done.out
    assert "kind.jsonl is missing" in done.err


@pytest.mark.parametrize(
    ("examples", "said"),
    [
        (
            "{'task_id': 'one'}",
            "Careless.examples is a dict. Set examples to a list of task rows, or to the name of a "
            "file of task rows next to the class's module.",
        ),
        ("'latin.jsonl'", "/latin.jsonl cannot be read: 'utf-8' codec can't decode byte 0xe9"),
        ("'list.jsonl'", "Example task 1 of 'Careless' is invalid: must be an object"),
        (
            "'bare.jsonl'",
            "Example task 1 of 'Careless' is invalid: prompt: is missing. Add this key, or",
        ),
    ],
)
def test_examples_that_are_none_are_one_sentence(folder: Path, examples: str, said: str) -> None:
    (folder / "latin.jsonl").write_bytes('{"task_id": "é"}'.encode("latin-1"))
    (folder / "list.jsonl").write_text("[1]\n")
    (folder / "bare.jsonl").write_text("{}\n")
    (folder / "kind.py").write_text(GUESSER.replace('"kind.jsonl"', examples))
    done = gym(folder, "env", "test", "kind.py:Careless")
    assert done.code == 1
    assert not done.err
    (line,) = (one for one in done.out.splitlines() if one.startswith("  BAD"))
    assert said in line


def test_examples_may_lie_in_a_folder(folder: Path) -> None:
    (folder / "tasks").mkdir()
    (folder / "kind.jsonl").rename(folder / "tasks" / "kind.jsonl")
    (folder / "kind.py").write_text(GUESSER.replace("kind.jsonl", "tasks/kind.jsonl"))
    tried = gym(folder, "env", "test", "kind.py:Careless", "--sessions", "5", "--json")
    found = {one["check"]: one["detail"] for one in json.loads(tried.out)["Careless"]}
    assert found["tasks"] == "1 opened"


def test_tasks_of_the_users_own(folder: Path) -> None:
    (folder / "mine.jsonl").write_text(json.dumps({**TASK, "wanted": ""}) + "\n")
    done = gym(folder, "env", "test", "kind.py:Careless", "--tasks", "mine.jsonl")
    assert "1 x reward 1" in done.out


@pytest.mark.parametrize(
    ("place", "said"),
    [("nowhere/", "no environment"), ("kind.py:Missing", "kind.py: Kind"),
     ("gone.py", "no file gone.py"), (".", "no pyproject.toml")],
)  # fmt: skip
def test_a_place_without_environments_is_one_sentence(folder: Path, place: str, said: str) -> None:
    done = gym(folder, "env", "test", place)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err


def test_the_list_tells_of_the_configured_and_the_installed(folder: Path) -> None:
    (folder / "mesh.yaml").write_text(
        "environments:\n"
        "  nice: {use: 'kind.py:Kind', models: {judge: big}}\n"
        "  gone: {use: 'kind.py:Gone'}\n"
        "defaults: {environment: nice}\n"
    )
    done = gym(folder, "env", "list", "--config", "mesh.yaml", "--json")
    listed = json.loads(done.out)
    nice, gone = listed["environments"][-2:]
    assert nice["description"] == "Asks a judge whether the answer is kind."
    assert (nice["models"], nice["multi_turn"], nice["default"]) == (["big"], False, True)
    assert "has no 'Gone'" in gone["problem"]
    assert "math" in [one["name"] for one in listed["installed"]]
    text = gym(folder, "env", "list", "--config", "mesh.yaml").out
    assert "nice  Asks a judge whether the answer is kind" in text
    assert "environments of the configuration:" in text
    assert "can call models: big" in text
    assert "environments of the default configuration:" in gym(folder, "env", "list").out
