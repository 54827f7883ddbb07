"""An environment of somebody else's package: installed with pip, found by its entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path("examples/packaged_environment").resolve()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip installed the package."""
    target = tmp_path_factory.mktemp("site")
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target), str(PACKAGE),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return target


def gym(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gymmesh_cli", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *map(str, sys.path[1:])])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_its_rollouts_are_collected_under_its_name(installed: Path, tmp_path: Path) -> None:
    output = tmp_path / "rollouts.jsonl"
    done = gym(
        installed, PACKAGE,
        "collect", "--config", "mesh.yaml", "--input", "tasks.jsonl", "--output", str(output),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    rewards = {row["task_id"]: row["reward"] for row in rows}
    # Of three coins the second is heavy, which one weighing shows; of nine the eighth is.
    assert rewards == {"weighing-3": 1.0, "weighing-9": 0.0}


def test_it_is_listed_and_passes_its_trial(installed: Path, tmp_path: Path) -> None:
    listed = json.loads(gym(installed, tmp_path, "env", "list", "--json").stdout)
    mine = [one for one in listed["installed"] if one["name"] == "weighing"]
    assert [(one["version"], one["problem"]) for one in mine] == [("3", "")]
    done = gym(installed, tmp_path, "env", "test", "weighing", "--sessions", "20")
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_the_package_the_name_is_one_clear_sentence(tmp_path: Path) -> None:
    done = gym(tmp_path, tmp_path, "env", "test", "weighing")
    assert done.returncode == 2
    assert "no environment 'weighing'" in done.stderr
    assert "Traceback" not in done.stderr
