"""The page on training: its Python runs, from the folder of the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_the_snippets_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "training.md").read_text()
    # What needs TRL is run by tests/handoff.
    blocks = re.findall(r"```python\n((?!# TRL).*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "training.md", "exec"), names)  # noqa: S102
    said = sorted(capsys.readouterr().out.splitlines())
    assert said[0] == "one [1.0, 1.0, 1.0, 1.0] [0.0, 0.0, 0.0, 0.0] 0"
    assert said[1].endswith("[0.0, 0.0, 0.0, 0.0] [0.0, 0.0, 0.0, 0.0] 0")
