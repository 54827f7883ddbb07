"""A loop of one's own with torch: dynamic sampling, evaluation between steps, kill and resume. The
same loop trains the built-in agent and a program in a sandbox.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.optional import require

ROOT = Path(__file__).parents[3]
_LOST_S = 600.0


def command(folder: Path, steps: int, seed: int, *more: str) -> list[str]:
    given = ["--folder", str(folder), "--steps", str(steps), "--seed", str(seed), *more]
    return [sys.executable, "examples/grpo/loop.py", *given]


def trained(folder: Path, steps: int, seed: int, *more: str) -> list[dict[str, Any]]:
    """Train to the end; the lines of all steps."""
    words = command(folder, steps, seed, *more)
    subprocess.run(words, cwd=ROOT, check=True, timeout=5 * _LOST_S)
    return lines_of(folder)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


@pytest.mark.timeout(6 * _LOST_S)  # 3,000 sandboxes for each training of the program
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("agent", ["tool_loop", "program"])
def test_dynamic_sampling_raises_the_evaluation(tmp_path: Path, agent: str, seed: int) -> None:
    more = ["--agent", agent]
    if agent == "program":
        require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
        more += ["--concurrency", "8"]
    found = trained(tmp_path, 40, seed, *more)
    assert [line["step"] for line in found] == list(range(1, 41))
    curve = [line["evaluation"] for line in found if "evaluation" in line]
    assert len(curve) == 8
    assert sum(curve[-2:]) / 2 > curve[0] + 0.1, curve


@pytest.mark.timeout(3 * _LOST_S)
def test_a_training_killed_in_its_seventh_step_goes_on_with_the_same_rollouts(
    tmp_path: Path,
) -> None:
    whole = trained(tmp_path / "whole", 9, 0)
    folder = tmp_path / "killed"
    rows = folder / "rollouts.step-7.jsonl"
    with subprocess.Popen(
        command(folder, 9, 0), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["step"] == 6:
                break
        # In the middle of step 7: some of its rollouts are on disk.
        while not (rows.exists() and rows.stat().st_size) and process.poll() is None:
            time.sleep(0.002)
        process.kill()
    before = lines_of(folder)
    assert 6 <= len(before) < 9  # a busy machine may kill it later
    assert before == whole[: len(before)]
    assert trained(folder, 9, 0) == whole
