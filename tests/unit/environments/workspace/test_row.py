"""Rows of the workspace: what is read, and what is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gymmesh_resource import Task, TaskInvalid
from gymmesh_resource.environments.workspace import WorkspaceEnvironment
from gymmesh_resource.environments.workspace.row import read_row

CHECKS = [{"run": "true"}]


def task(**row: Any) -> Task:
    return Task.of({"task_id": "t", "responses_create_params": {"input": "Do it."}, **row})


def test_a_row_needs_no_more_than_a_check() -> None:
    row = read_row(task(checks=CHECKS, notes="of the author"))
    assert list(row.named_checks()) == ["check_1"]
    assert row.verify_in == "fresh"


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({}, "checks"),
        ({"checks": []}, "checks"),
        ({"checks": [{"run": ""}]}, "checks[0].run"),
        ({"checks": [{"run": "a", "weight": 0}]}, "checks[0].weight"),
        ({"checks": [{"run": "a", "tests": 1}]}, "checks[0]"),
        ({"checks": [{"run": "a", "name": "x"}, {"run": "b", "name": "x"}]}, "checks"),
        ({"checks": [{"run": "a\0b"}]}, "checks[0].run"),
        ({"checks": CHECKS, "files": {"../x": ""}}, "files['../x']"),
        ({"checks": CHECKS, "files": {"/etc/x": ""}}, "files['/etc/x']"),
        ({"checks": CHECKS, "files": {"x": {"mode": "755"}}}, "files['x']"),
        ({"checks": CHECKS, "files": {"x": {"base64": "?"}}}, "files['x']"),
        ({"checks": CHECKS, "tests": {"files": {"a/../../x": ""}}}, "tests.files['a/../../x']"),
        ({"checks": CHECKS, "tests": {"path": "tests"}}, "tests.path"),
        ({"checks": CHECKS, "workdir": "app"}, "workdir"),
        ({"checks": CHECKS, "verify_in": "elsewhere"}, "verify_in"),
        ({"checks": CHECKS, "limits": {"memory": 1}}, "limits"),
        ({"checks": CHECKS, "setup_timeout_s": 0}, "setup_timeout_s"),
        ({"checkz": CHECKS}, "checkz"),
        ({"checks": CHECKS, "soluton": "true"}, "soluton"),
        ({"checks": CHECKS, "verify-in": "same"}, "verify-in"),
    ],
)
def test_what_cannot_be_run_is_refused_by_its_key(row: dict[str, Any], field: str) -> None:
    with pytest.raises(TaskInvalid) as refused:
        read_row(task(**row))
    assert refused.value.field == field


def test_a_value_that_is_none_of_a_few_is_refused_with_those() -> None:
    with pytest.raises(TaskInvalid, match="'elsewhere'; valid here: fresh, same, snapshot"):
        read_row(task(checks=CHECKS, verify_in="elsewhere"))
    with pytest.raises(TaskInvalid, match="Did you mean 'checks'"):
        read_row(task(checkz=CHECKS))


def test_other_keys_are_the_authors() -> None:
    read_row(task(checks=CHECKS, repo="a/b", user_id=1, difficulty=2, base_commit="1", env_id="x"))


def test_files_come_from_the_environments_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    (folder / "repo").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path)
    (tmp_path / "secret").mkdir()
    environment = WorkspaceEnvironment(folder=str(folder))
    environment.check_task(task(checks=CHECKS, folder="repo"))
    for key, value in (
        ("folder", "../secret"),
        ("folder", "link/secret"),
        ("folder", str(tmp_path / "secret")),
        ("folder", "missing"),
        ("archive", "repo"),
    ):
        with pytest.raises(TaskInvalid) as refused:
            environment.check_task(task(checks=CHECKS, **{key: value}))
        assert refused.value.field == key
    with pytest.raises(TaskInvalid, match="environment's option 'folder' is not set"):
        WorkspaceEnvironment().check_task(task(checks=CHECKS, folder="repo"))
