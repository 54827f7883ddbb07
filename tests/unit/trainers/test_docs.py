"""The page on training, and the README's own loop: their Python runs."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import gymmesh
from gymmesh_trainers import Generation, SamplingParams, Settings
from tests.unit.trainers.char_model import CharTokenizer
from tests.unit.trainers.environments import Sums, rows

ROOT = Path(__file__).parents[3]


def test_the_snippets_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")  # environments of the page
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "how-to" / "training.md").read_text()
    # What needs TRL is run by tests/handoff.
    blocks = re.findall(r"```python\n((?!# TRL).*?)```", page, re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "training.md", "exec"), names)  # noqa: S102
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:5] == [
        f"step {number} <RolloutGroup of 'one': rewards [1, 1, 1, 1]>" for number in (1, 2, 3)
    ]
    assert lines[5:] == ["<Evaluation of 2 tasks: mean reward 0.5>"]
    said = sorted(lines[:2])
    assert said[0] == "one [1.0, 1.0, 1.0, 1.0] [0.0, 0.0, 0.0, 0.0] 0"
    assert said[1].endswith("[0.0, 0.0, 0.0, 0.0] [0.0, 0.0, 0.0, 0.0] 0")


def test_the_table_of_settings_has_all_of_them_with_their_defaults() -> None:
    page = (ROOT / "docs" / "how-to" / "training.md").read_text()
    table = page.partition("| setting | default | meaning |\n|---|---|---|\n")[2].partition("\n\n")[
        0
    ]
    said = {}
    for line in table.splitlines():
        _, name, default, *_ = (cell.strip(" `") for cell in line.split("|"))
        said[name] = ast.literal_eval(default)
    settings = Settings()
    assert said == {one.name: getattr(settings, one.name) for one in fields(Settings)}
    assert list(said) == [one.name for one in fields(Settings)]


def test_a_step_in_which_every_group_failed_ends_no_loop() -> None:
    class Optimizer:
        def step(self) -> None:
            """Nothing has gradients."""

        def zero_grad(self) -> None:
            """Nor is there one to forget."""

    async def breaks(prompt: list[int], params: SamplingParams) -> Generation:
        raise RuntimeError("no memory")

    page = (ROOT / "README.md").read_text()
    loop = page.partition("```python\n# A loop of your own\n")[2].partition("```")[0]
    printed: list[tuple[object, ...]] = []
    names: dict[str, Any] = {
        "gymmesh": gymmesh,
        "engine": breaks,
        "tokenizer": CharTokenizer(),
        "optimizer": Optimizer(),
        "environment": Sums(),
        "tasks": rows(1),
        "steps": 2,
        "print": lambda *said: printed.append(said),
    }
    exec(compile(loop, "README.md", "exec"), names)  # noqa: S102
    names["train"]()
    assert [step for step, _ in printed] == [0, 1]
