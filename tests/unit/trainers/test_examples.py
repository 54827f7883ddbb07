"""The examples of training explain themselves where no library for training is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WITHOUT = """
import runpy, sys
sys.modules.update(dict.fromkeys(("torch", "transformers", "tokenizers", "datasets", "trl")))
sys.argv = [sys.argv[1], "--help"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("name", ["train", "loop"])
def test_help_needs_no_library_for_training(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, f"examples/grpo/{name}.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "--steps" in done.stdout
