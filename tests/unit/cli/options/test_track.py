"""Options that send a run's figures to a tracker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gymmesh_cli.main import cli
from gymmesh_cli.options import track
from gymmesh_data.track import TRACKERS
from gymmesh_runtime import extras


def collect(folder: Path, *more: str) -> str:
    tasks = folder / "tasks.jsonl"
    tasks.write_text(json.dumps({"responses_create_params": {"input": "1 + 1?"}}) + "\n")
    output = folder / "rollouts.jsonl"
    done = CliRunner().invoke(cli, ["collect", "-i", str(tasks), "-o", str(output), *more])
    assert done.exit_code == 2
    assert not output.exists()
    return done.output


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no tracker is, whatever is installed here."""
    monkeypatch.setattr(extras, "find_spec", lambda module: None)


def test_the_command_has_every_tracker() -> None:
    assert track._TRACKERS == TRACKERS


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_tracker_that_is_not_installed_is_one_sentence(tracker: str, tmp_path: Path) -> None:
    said = collect(tmp_path, "--track", tracker)
    wanted = f"--track {tracker} needs {tracker}: pip install 'gymmesh[{tracker}]'"
    assert said == f"gym-cli: {wanted}\n"


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_profile_asks_for_the_tracker_before_it_reads(tracker: str, tmp_path: Path) -> None:
    rows = tmp_path / "rollouts.jsonl"
    done = CliRunner().invoke(cli, ["profile", str(rows), "--track", tracker])
    assert done.exit_code == 2
    wanted = f"--track {tracker} needs {tracker}: pip install 'gymmesh[{tracker}]'"
    assert done.output == f"gym-cli: {wanted}\n"


@pytest.mark.parametrize("option", [("--track-project", "mine"), ("--track-samples", "3")])
def test_what_goes_with_a_tracker_needs_one(option: tuple[str, str], tmp_path: Path) -> None:
    assert "need --track" in collect(tmp_path, *option)
