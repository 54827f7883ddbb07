"""What docs/how-to/trainers.md shows is what slime and AReaL read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from areal.api.cli_args import GenerationHyperparameters
from areal.utils.dynamic_import import import_from_string

from gymmesh_trainers.areal import task_of_row
from tests.handoff.slime_areal.slime_source import FOLDER, require_slime

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = (ROOT / "docs" / "how-to" / "trainers.md").read_text(encoding="utf-8")


def block(begins: str) -> str:
    found = re.search(rf"```python\n# {begins}.*?\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_slimes_module_is_one_that_slime_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    require_slime()
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    exec(compile(block("slime"), "trainers.md", "exec"), names)  # noqa: S102
    assert callable(names["generate"])
    text = PAGE.partition("\n## slime\n")[2].partition("\n## AReaL\n")[0]
    known = (Path(FOLDER) / "slime" / "utils" / "arguments.py").read_text(encoding="utf-8")
    shown = set(re.findall(r"--[a-z-]+", text))
    words = r"`((?:rollout|group|partial|use|reward|eval|apply|log)_[a-z_]+)`"
    named = set(re.findall(words, text)) - {"rollout_id", "group_rewards"}
    for option in shown | {f"--{one.replace('_', '-')}" for one in named}:
        assert f'"{option}"' in known
    for path in re.findall(r"gymmesh_trainers\.slime\.\w+", text):
        assert callable(import_from_string(path))


def test_rows_of_a_task_file_are_tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    examples = tmp_path / "examples"
    examples.symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    exec(compile(block("rows for slime"), "trainers.md", "exec"), {})  # noqa: S102
    lines = (examples / "first_environment" / "tasks.jsonl").read_text().splitlines()
    made = [json.loads(line) for line in Path("slime.jsonl").read_text().splitlines()]
    assert [json.loads(one["metadata"]["task"]) for one in made] == [*map(json.loads, lines)]
    names: dict[str, Any] = {}
    exec(compile(block("rows for AReaL"), "trainers.md", "exec"), names)  # noqa: S102
    assert [task_of_row(one) for one in names["dataset"]] == [*map(json.loads, lines)]


def test_areals_training_script_makes_the_workflow(
    qwen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    asked: dict[str, Any] = {}
    names = {
        "trainer": SimpleNamespace(train=lambda **given: asked.update(given)),
        "config": SimpleNamespace(gconfig=GenerationHyperparameters(), tokenizer_path=qwen),
    }
    exec(compile(block("AReaL"), "trainers.md", "exec"), names)  # noqa: S102
    made = import_from_string(asked["workflow"])(**asked["workflow_kwargs"])
    assert type(made).__name__ == "GymmeshWorkflow"
