"""The log of a run: beside it, each traceback once; the terminal shows what is urgent."""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path

import pytest

from gymmesh_cli.terminal.logs import logged, logged_to

LOG = logging.getLogger("gymmesh.test")


def _fail(times: int) -> None:
    for number in range(times):
        try:
            raise LookupError(f"text {number}")
        except LookupError:
            LOG.exception("attempt %d failed", number)


def test_all_goes_to_the_file_and_the_end_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rollouts.errors.log"
    with logged_to(path, anew=True):
        _fail(20)
        LOG.info("nothing to see")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("a library's note", stacklevel=1)
        LOG.error("it stands still", extra={"urgent": True})
    text = path.read_text()
    assert text.count("Traceback") == 1
    assert "20 times in all: attempt 0 failed" in text
    assert "a library's note" in text
    assert "nothing to see" not in text
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "gym-cli: it stands still",
        f"gym-cli: errors were logged to {path}, each traceback once",
    ]


@pytest.mark.parametrize("count", [1, 2])
def test_warnings_alone_are_called_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    path = tmp_path / "rollouts.errors.log"
    with logged_to(path, anew=True):
        for number in range(count):
            LOG.warning("%s is slow", "ab"[number])
            LOG.warning("%s is slow", "ab"[number])
    said = "1 warning" if count == 1 else "2 warnings"
    assert capsys.readouterr().err == f"gym-cli: {said} logged in {path}\n"


def test_as_json_every_line_of_the_file_is_an_object(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.errors.log"
    with logged_to(path, anew=True, log_format="json"):
        _fail(20)
        LOG.error("of one", extra={"rollout_id": "r-1"})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["message"] == "attempt 0 failed"
    assert "LookupError: text 0" in lines[0]["exception"]
    assert lines[-2] == {**lines[-2], "message": "of one", "rollout_id": "r-1", "level": "ERROR"}
    assert lines[-1]["message"] == "20 times in all: attempt 0 failed"


def test_where_nothing_goes_wrong_there_is_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rollouts.errors.log"
    with logged_to(path, anew=True):
        LOG.info("fine")
    assert not path.exists()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("anew", "left"), [(True, False), (False, True)])
def test_a_run_that_goes_on_keeps_its_log(tmp_path: Path, *, anew: bool, left: bool) -> None:
    path = tmp_path / "rollouts.errors.log"
    path.write_text("of the first part\n")
    with logged_to(path, anew=anew):
        LOG.warning("of the second")
    assert ("of the first part" in path.read_text()) is left
    assert "of the second" in path.read_text()


def test_a_log_that_cannot_be_written_costs_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with logged_to(tmp_path / "gone" / "rollouts.errors.log", anew=True):
        _fail(2)
    assert capsys.readouterr().err == ""


def test_elsewhere_it_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    with logged():
        _fail(5)
    err = capsys.readouterr().err
    assert err.count("LookupError: text") == 1
    assert err.startswith("gym-cli: attempt 0 failed\n    Traceback")
